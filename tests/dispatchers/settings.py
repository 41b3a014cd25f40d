"""The settings of processes that dispatchers' tests start: durations are seconds, Celery's own are JSON too."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

from tests.acceptance.settings import *  # noqa: F403 - the same, and a little more
from tests.acceptance.settings import GENEVA_DRIVE as _GIVEN
from tests.acceptance.settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [*_APPS, "django_tasks_db"]

TASKS = json.loads(os.environ.get("GENEVA_TEST_TASKS", "{}")) or {
    "default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": ["default", "deadly"]}
}

CELERY = json.loads(os.environ.get("GENEVA_TEST_CELERY", "{}"))


def dispatcher(path: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The setting, with seconds made durations."""
    durations = ("lookahead", "inline_continuation_for")
    return path, {
        name: timedelta(seconds=value) if name in durations and value is not None else value
        for name, value in options.items()
    }


GENEVA_DRIVE = dict(_GIVEN)
if isinstance(GENEVA_DRIVE.get("DISPATCHER"), list):
    GENEVA_DRIVE["DISPATCHER"] = dispatcher(*GENEVA_DRIVE["DISPATCHER"])

if CELERY:
    # As a project's own package does: whatever process this is, it sends to the project's broker.
    from tests.dispatchers import celery_app  # noqa: F401
