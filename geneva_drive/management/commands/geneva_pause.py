"""``manage.py geneva_pause``."""

from __future__ import annotations

from typing import Any

from geneva_drive.management.action_command import ActionCommand
from geneva_drive.models.workflow import Workflow


class Command(ActionCommand):
    help = (
        "Pause workflows: after the step in flight, or at once. Exit status: 0 done, 1 some could not be paused, "
        "2 wrong use."
    )
    verb, done = "pause", "paused"
    control = "pause"

    def act(self, workflow: Workflow, options: dict[str, Any]) -> None:
        workflow.pause(by=options["by"], reason=options["reason"])
