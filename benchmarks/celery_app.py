"""The Celery app of the benchmark of dispatchers."""

from __future__ import annotations

import os

from celery import Celery

app = Celery("benchmarks", broker=os.environ.get("GENEVA_BENCH_REDIS", "redis://127.0.0.1:6379/0"))
app.conf.task_default_queue = "benchmarks"
app.conf.broker_connection_retry_on_startup = True
app.autodiscover_tasks()
