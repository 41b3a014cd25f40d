"""``manage.py geneva_resume``."""

from __future__ import annotations

from typing import Any

from geneva_drive.management.action_command import ActionCommand
from geneva_drive.models.workflow import Workflow


class Command(ActionCommand):
    help = (
        "Resume paused workflows: what was scheduled goes on, a failed step is tried again. Exit status: 0 done, "
        "1 some could not be resumed, 2 wrong use."
    )
    verb, done = "resume", "resumed"
    control = "resume"

    def act(self, workflow: Workflow, options: dict[str, Any]) -> None:
        workflow.resume(by=options["by"], reason=options["reason"])
