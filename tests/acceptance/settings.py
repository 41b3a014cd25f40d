"""The settings of worker processes that tests start: durations in ``GENEVA_TEST_SETTINGS`` are seconds."""

from __future__ import annotations

import os
from datetime import timedelta

from geneva_drive.conf import DEFAULTS
from tests.settings import *  # noqa: F403 - the same, and a little more
from tests.settings import GENEVA_DRIVE as _GIVEN
from tests.settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [*_APPS, "tests.acceptance.workshop"]

GENEVA_DRIVE = {
    key: timedelta(seconds=value) if isinstance(DEFAULTS[key], timedelta) else value
    for key, value in _GIVEN.items()
}

if _init_command := os.environ.get("GENEVA_TEST_INIT_COMMAND"):
    # MySQL and MariaDB run this at the start of each session.
    for _settings in DATABASES.values():  # noqa: F405
        _settings.setdefault("OPTIONS", {})["init_command"] = _init_command

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(levelname)s %(name)s %(threadName)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"level": "INFO", "handlers": ["stderr"]},
}
