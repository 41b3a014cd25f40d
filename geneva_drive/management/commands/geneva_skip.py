"""``manage.py geneva_skip``."""

from __future__ import annotations

from typing import Any

from geneva_drive.management.action_command import ActionCommand
from geneva_drive.models.workflow import Workflow


class Command(ActionCommand):
    help = (
        "Pass over the step that workflows stand at and go on with the next. Exit status: 0 done, 1 some could "
        "not go on, 2 wrong use."
    )
    verb, done = "skip a step of", "skipped a step"
    control = "skip"

    def act(self, workflow: Workflow, options: dict[str, Any]) -> None:
        workflow.skip(by=options["by"], reason=options["reason"])
