"""``manage.py geneva_skip``."""

from __future__ import annotations

from typing import Any

from django.db.models import Q

from geneva_drive.management import foreseeing
from geneva_drive.management.acting import ActionCommand
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import WorkflowState


class Command(ActionCommand):
    help = (
        "Pass over the step that workflows stand at and go on with the next. Exit status: 0 done, 1 some could "
        "not go on, 2 wrong use."
    )
    verb, done = "skip a step of", "skipped a step"

    def possible(self, using: str) -> Q:  # noqa: ARG002
        return Q(state__in=(WorkflowState.READY, WorkflowState.PAUSED))

    def foresee(self, workflow: Workflow, active: StepExecution | None, options: dict[str, Any]) -> None:  # noqa: ARG002
        foreseeing.skip(workflow, active)

    def act(self, workflow: Workflow, options: dict[str, Any]) -> None:
        workflow.skip(by=options["by"], reason=options["reason"])
