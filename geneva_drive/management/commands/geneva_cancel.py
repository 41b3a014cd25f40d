"""``manage.py geneva_cancel``."""

from __future__ import annotations

from typing import Any

from geneva_drive.management.action_command import ActionCommand
from geneva_drive.models.workflow import Workflow


class Command(ActionCommand):
    help = (
        "Cancel workflows: nothing follows the step in flight, and it cannot be undone. Exit status: 0 done, "
        "1 some could not be canceled, 2 wrong use."
    )
    verb, done = "cancel", "canceled"
    control = "cancel"

    def act(self, workflow: Workflow, options: dict[str, Any]) -> None:
        workflow.cancel(by=options["by"], reason=options["reason"])
