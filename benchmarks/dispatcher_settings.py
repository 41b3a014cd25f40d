"""Settings of the benchmark of dispatchers."""

from __future__ import annotations

from benchmarks import celery_app  # noqa: F401 - as a project's package does
from benchmarks.settings import *  # noqa: F403 - the same settings and a task backend
from benchmarks.settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [*_APPS, "django_tasks_db"]
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": []}}
