"""``manage.py geneva_resume``."""

from __future__ import annotations

from geneva_drive.management.action_command import ActionCommand


class Command(ActionCommand):
    help = (
        "Resume paused workflows: a scheduled step keeps its time, a failed step is retried. Exit status: 0 done, 1 "
        "some could not be resumed, 2 usage error."
    )
    control, done = "resume", "resumed"
