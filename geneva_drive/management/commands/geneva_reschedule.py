"""``manage.py geneva_reschedule``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from geneva_drive import clock
from geneva_drive.management.action_command import ActionCommand
from geneva_drive.management.base import MISUSE
from geneva_drive.models.workflow import Workflow


class Command(ActionCommand):
    help = (
        "Move the scheduled step of workflows in time; a paused one keeps the new time until it is resumed. Exit "
        "status: 0 done, 1 some have no scheduled step, 2 wrong use."
    )
    verb, done = "reschedule", "rescheduled"
    control = "reschedule"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "when",
            metavar="WHEN",
            help="now, or a time in ISO 8601: 2031-05-01T09:30+02:00. Without an offset it is in TIME_ZONE.",
        )
        super().add_arguments(parser)

    def prepare(self, options: dict[str, Any]) -> None:
        options["moment"] = _moment(options["when"])

    def describe(self, options: dict[str, Any]) -> str:
        moment = options["moment"]
        return f"reschedule to {'now' if moment is None else moment.isoformat()}"

    def act(self, workflow: Workflow, options: dict[str, Any]) -> None:
        workflow.reschedule(options["moment"], by=options["by"], reason=options["reason"])


def _moment(text: str) -> datetime | None:
    """Return the time that is meant, aware and in UTC; None for now."""
    if text == "now":
        return None
    try:
        return clock.utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        raise CommandError(
            f"{text!r} is no time. Write now, or ISO 8601: 2031-05-01T09:30+02:00.", returncode=MISUSE
        ) from error
