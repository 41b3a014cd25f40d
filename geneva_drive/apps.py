"""The Django app: its start-up, and the cache of column types that migrations reset."""

from __future__ import annotations

import contextlib
from typing import Any

from django.apps import AppConfig
from django.core.signals import setting_changed
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class GenevaDriveConfig(AppConfig):
    name = "geneva_drive"
    label = "geneva_drive"
    verbose_name = _("Workflows")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from geneva_drive import checks  # noqa: F401 - registers the checks
        from geneva_drive.exceptions import DispatcherError
        from geneva_drive.lifecycle import dispatch

        # The cached types of columns are valid until the next migration.
        post_migrate.connect(_columns_changed, dispatch_uid="geneva_drive.columns")
        setting_changed.connect(_columns_changed, dispatch_uid="geneva_drive.columns")

        # As with admin.py: importing the modules registers their classes.
        autodiscover_modules("workflows")
        # A process that runs dispatched work must have registered the dispatcher's task before it receives one.
        # The system checks report errors.
        with contextlib.suppress(DispatcherError):
            dispatch.configured_dispatcher()


def _columns_changed(using: str | None = None, setting: str = "DATABASES", **_: Any) -> None:
    from geneva_drive.models import columns

    if setting in ("DATABASES", "GENEVA_DRIVE"):
        columns.reset(using)
