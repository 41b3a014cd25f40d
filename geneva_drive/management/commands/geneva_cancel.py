"""``manage.py geneva_cancel``."""

from __future__ import annotations

from geneva_drive.management.action_command import ActionCommand


class Command(ActionCommand):
    help = (
        "Cancel workflows. A running step finishes, and no further step starts. Canceling cannot "
        "be undone. Exit status: 0 done, 1 some "
        "could not be canceled, 2 usage error."
    )
    control, done = "cancel", "canceled"
