"""``manage.py geneva_cancel``."""

from __future__ import annotations

from typing import Any

from django.db.models import Q

from geneva_drive.management import foreseeing
from geneva_drive.management.acting import ActionCommand
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ONGOING


class Command(ActionCommand):
    help = (
        "Cancel workflows: nothing follows the step in flight, and it cannot be undone. Exit status: 0 done, "
        "1 some could not be canceled, 2 wrong use."
    )
    verb, done = "cancel", "canceled"

    def possible(self, using: str) -> Q:  # noqa: ARG002
        return Q(state__in=ONGOING)

    def foresee(self, workflow: Workflow, active: StepExecution | None, options: dict[str, Any]) -> None:  # noqa: ARG002
        foreseeing.cancel(workflow)

    def act(self, workflow: Workflow, options: dict[str, Any]) -> None:
        workflow.cancel(by=options["by"], reason=options["reason"])
