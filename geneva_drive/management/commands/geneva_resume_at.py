"""``manage.py geneva_resume_at``."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from geneva_drive.management.action_command import ActionCommand
from geneva_drive.models.workflow import Workflow


class Command(ActionCommand):
    help = (
        "Resume paused workflows at a step of your choice, now, whatever was scheduled: for those whose step is "
        "gone. Exit status: 0 done, 1 some could not be resumed there, 2 wrong use."
    )
    verb, done = "resume", "resumed"
    control = "resume_at"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("at", metavar="AT", help="A runnable step of the workflow's class.")
        super().add_arguments(parser)

    def describe(self, options: dict[str, Any]) -> str:
        return f"resume at {options['at']}"

    def act(self, workflow: Workflow, options: dict[str, Any]) -> None:
        workflow.resume_at(options["at"], by=options["by"], reason=options["reason"])
