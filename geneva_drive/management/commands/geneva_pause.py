"""``manage.py geneva_pause``."""

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
        "Pause workflows: after the step in flight, or at once. Exit status: 0 done, 1 some could not be paused, "
        "2 wrong use."
    )
    verb, done = "pause", "paused"

    def possible(self, using: str) -> Q:  # noqa: ARG002
        return Q(state__in=(WorkflowState.READY, WorkflowState.PERFORMING))

    def foresee(self, workflow: Workflow, active: StepExecution | None, options: dict[str, Any]) -> None:  # noqa: ARG002
        foreseeing.pause(workflow)

    def act(self, workflow: Workflow, options: dict[str, Any]) -> None:
        workflow.pause(by=options["by"], reason=options["reason"])
