"""``manage.py geneva_pause``."""

from __future__ import annotations

from geneva_drive.management.action_command import ActionCommand


class Command(ActionCommand):
    help = (
        "Pause workflows. One that is running a step pauses after that step. Exit status: 0 done, "
        "1 some could not be paused, "
        "2 usage error."
    )
    control, done = "pause", "paused"
