"""``manage.py geneva_resume_at``."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from geneva_drive.management.action_command import ActionCommand


class Command(ActionCommand):
    help = (
        "Resume paused workflows at another step immediately, replacing what was scheduled. For "
        "workflows whose step was removed. "
        "Exit status: 0 done, 1 some could not be resumed there, 2 usage error."
    )
    control, done = "resume_at", "resumed"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("at", metavar="AT", help="A runnable step of the workflow's class.")
        super().add_arguments(parser)

    def describe(self, options: dict[str, Any]) -> str:
        return f"resume at {options['at']}"

    def arguments(self, options: dict[str, Any]) -> tuple[Any, ...]:
        return (options["at"],)
