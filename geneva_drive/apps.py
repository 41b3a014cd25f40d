"""The Django app."""

from __future__ import annotations

import contextlib

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class GenevaDriveConfig(AppConfig):
    name = "geneva_drive"
    label = "geneva_drive"
    verbose_name = _("Workflows")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from geneva_drive import checks  # noqa: F401 - registers the checks
        from geneva_drive.dispatchers import checking  # noqa: F401 - the same
        from geneva_drive.exceptions import DispatcherError
        from geneva_drive.lifecycle import outbox

        # Like admin.py: importing the modules is what makes their classes known.
        autodiscover_modules("workflows")
        # A process that runs what others dispatch has to know the dispatcher's task before it receives one.
        # What is wrong with it is told by the system checks.
        with contextlib.suppress(DispatcherError):
            outbox.configured_dispatcher()
