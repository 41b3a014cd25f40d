"""Django Tasks: built in from Django 6.0, the package ``django-tasks`` before that."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.core import checks
from django.db import router

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.registry import registry
from geneva_drive.dispatchers import django_tasks_entry
from geneva_drive.dispatchers.base import Dispatcher
from geneva_drive.dispatchers.running import message_id

_MOST = 100
"""Priorities of Django Tasks are from -100 to 100, the highest first."""


class DjangoTasks(Dispatcher):
    """Enqueue each execution as a task of Django's framework, on the backend that the project has chosen.

    Queue, priority and time are passed on where the backend supports them. Where it cannot delay tasks, the
    feeder enqueues them when they are due. With the database backend of ``django-tasks-db``, on the database
    that holds the rows, the task is written in the transaction that writes the row.

    Parameters
    ----------
    backend
        Its alias in ``TASKS``.
    """

    supports_queues = True

    def __init__(self, *, backend: str = "default", **options: Any) -> None:
        super().__init__(**options)
        self.alias = backend
        self.backend = django_tasks_entry.backend_of(backend)
        self.supports_delays = bool(self.backend.supports_defer)
        self.supports_priorities = bool(self.backend.supports_priority)
        self.same_transaction = self._table() is not None

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        """Enqueue one task; its id is the job's."""
        changes: dict[str, Any] = {"backend": self.alias, "queue_name": self.queue_for(options["queue"])}
        if self.supports_priorities:
            changes["priority"] = -max(-_MOST, min(_MOST, options["priority"]))
        if options["delay"] and self.supports_delays:
            # By this host's clock, since backends compare with theirs and not with the database's.
            changes["run_after"] = clock.local(datetime.now(UTC) + timedelta(seconds=options["delay"]))
        task = django_tasks_entry.run_execution.using(**changes)
        return str(task.enqueue(message_id(execution_id), options["using"]).id)

    def enqueues_inside(self, using: str) -> bool:
        """Whether the backend writes its tasks to the same database, at once."""
        table = self._table()
        return table is not None and not self._waits_itself() and router.db_for_write(table) == using

    def _table(self) -> Any:
        """Return the model of a backend that keeps its tasks in a database, or None."""
        if find_spec("django_tasks_db") is None:
            return None
        database_backend = import_module("django_tasks_db.backend").DatabaseBackend
        if not isinstance(self.backend, database_backend):
            return None
        return import_module("django_tasks_db.models").DBTaskResult

    def _waits_itself(self) -> bool:
        # Old versions of the framework enqueue after the commit by themselves.
        return bool(getattr(self.backend, "enqueue_on_commit", False))

    def check(self) -> list[checks.CheckMessage]:
        """Report queues that the backend does not declare, and a backend that waits for the commit itself."""
        return list(self._problems())

    def _problems(self) -> Iterator[checks.CheckMessage]:
        declared = set(self.backend.queues)
        options = (
            each
            for cls in registry.all()
            for each in (cls._geneva.job_options, *(step.options for step in cls.steps.runnable))
        )
        used = {settings.DEFAULT_QUEUE, *(each["queue"] for each in options if each.get("queue"))}
        missing = sorted({self.queue_for(queue) for queue in used} - declared)
        # No queues declared: all are allowed.
        if declared and missing:
            yield checks.Error(
                f"Steps use queues that TASKS[{self.alias!r}] does not declare: {', '.join(missing)}.",
                hint=f"Add them to TASKS[{self.alias!r}]['QUEUES'], or map them to others with the dispatcher's "
                "option 'queues'.",
                id="geneva_drive.E071",
            )
        if self._waits_itself():
            yield checks.Warning(
                f"TASKS[{self.alias!r}] enqueues each task after the commit, which geneva_drive does already.",
                hint="Set 'ENQUEUE_ON_COMMIT': False, or use django-tasks 0.12 or newer.",
                id="geneva_drive.W072",
            )
