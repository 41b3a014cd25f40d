"""The system check of the dispatcher that the settings name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, register

from geneva_drive.exceptions import DispatcherError
from geneva_drive.lifecycle import dispatch

__all__ = ["check_dispatcher"]


@register()
def check_dispatcher(app_configs: Sequence[AppConfig] | None = None, **_: Any) -> list[CheckMessage]:
    """Whether the dispatcher can be used, and what it says about its own configuration."""
    if app_configs is not None and not any(each.label == "geneva_drive" for each in app_configs):
        return []
    try:
        dispatcher = dispatch.configured_dispatcher()
    except DispatcherError as error:
        return [Error(str(error), id="geneva_drive.E070")]
    return list(dispatcher.check())
