"""A project's Celery app: ``celery -A tests.dispatchers.celery_app worker``."""

from __future__ import annotations

import json
import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.dispatchers.settings")

app = Celery("geneva_tests")
app.conf.update(
    {
        "broker_connection_retry_on_startup": True,
        "worker_send_task_events": False,
        **json.loads(os.environ.get("GENEVA_TEST_CELERY", "{}")),
    }
)
app.autodiscover_tasks()
