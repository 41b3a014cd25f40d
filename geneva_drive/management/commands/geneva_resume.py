"""``manage.py geneva_resume``."""

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
        "Resume paused workflows: what was scheduled goes on, a failed step is tried again. Exit status: 0 done, "
        "1 some could not be resumed, 2 wrong use."
    )
    verb, done = "resume", "resumed"

    def possible(self, using: str) -> Q:  # noqa: ARG002
        return Q(state=WorkflowState.PAUSED) | Q(
            state=WorkflowState.PERFORMING, pause_requested_at__isnull=False
        )

    def foresee(self, workflow: Workflow, active: StepExecution | None, options: dict[str, Any]) -> None:  # noqa: ARG002
        foreseeing.resume(workflow, active)

    def act(self, workflow: Workflow, options: dict[str, Any]) -> None:
        workflow.resume(by=options["by"], reason=options["reason"])
