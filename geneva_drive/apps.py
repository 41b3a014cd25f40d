"""The Django app."""

from __future__ import annotations

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

        # Like admin.py: importing the modules is what makes their classes known.
        autodiscover_modules("workflows")
