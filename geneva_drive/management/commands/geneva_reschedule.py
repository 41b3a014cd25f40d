"""``manage.py geneva_reschedule``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from geneva_drive import clock
from geneva_drive.management.action_command import ActionCommand
from geneva_drive.management.base import MISUSE


class Command(ActionCommand):
    help = (
        "Change when the scheduled step of workflows runs. A paused workflow keeps the new time until it is resumed. "
        "Exit status: 0 done, 1 some have no scheduled step, 2 usage error."
    )
    control, done = "reschedule", "rescheduled"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "when",
            metavar="WHEN",
            help="now, or a time in ISO 8601: 2031-05-01T09:30+02:00. Without an offset it is in TIME_ZONE.",
        )
        super().add_arguments(parser)

    def describe(self, options: dict[str, Any]) -> str:
        (moment,) = self.arguments(options)
        return f"reschedule to {'now' if moment is None else moment.isoformat()}"

    def arguments(self, options: dict[str, Any]) -> tuple[datetime | None]:
        """Return the time, aware and in UTC; None for now."""
        if options["when"] == "now":
            return (None,)
        try:
            return (clock.utc(datetime.fromisoformat(options["when"])),)
        except (ValueError, OverflowError) as error:
            raise CommandError(
                f"{options['when']!r} is not a time. Write now, or ISO 8601: 2031-05-01T09:30+02:00.",
                returncode=MISUSE,
            ) from error
