"""``manage.py geneva_skip``."""

from __future__ import annotations

from typing import Any

from geneva_drive.management.action_command import ActionCommand


class Command(ActionCommand):
    help = (
        "Skip the step at which workflows are, and continue with the next. Exit status: 0 done, 1 some could not be "
        "moved, 2 usage error."
    )
    control, done = "skip", "skipped a step"

    def describe(self, options: dict[str, Any]) -> str:  # noqa: ARG002
        return "skip a step of"
