"""Django Tasks: built in from Django 6.0, the package ``django-tasks`` before that."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import router

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.registry import registry
from geneva_drive.dispatchers.base import Dispatcher
from geneva_drive.dispatchers.running import message_id
from geneva_drive.exceptions import DispatcherError

_MOST = 100
"""Priorities of Django Tasks go from -100 to 100, the higher the earlier."""


def tasks_module() -> Any:
    """Return ``django.tasks``, or the backport ``django_tasks`` where Django has none.

    Raises
    ------
    DispatcherError
        There is neither.
    """
    for name in ("django.tasks", "django_tasks"):
        if find_spec(name) is not None:
            return import_module(name)
    raise DispatcherError(
        "Django Tasks are built in from Django 6.0. On this Django they come with a package: "
        "pip install 'geneva_drive[tasks]'."
    )


def backend_of(alias: str) -> Any:
    """Return the backend that ``TASKS`` declares under ``alias``.

    Raises
    ------
    DispatcherError
        There is none, or it cannot be made.
    """
    handler = tasks_module().task_backends
    try:
        return handler[alias]
    except (ImproperlyConfigured, ImportError) as error:
        raise DispatcherError(f"TASKS has no usable backend {alias!r}: {error}") from error


class DjangoTasks(Dispatcher):
    """Each due execution is a task of Django's framework, on the backend that the project has chosen.

    Queue, priority and time are handed over where the backend supports them; what it cannot put off is fed
    when it is due. With the database backend of ``django-tasks-db``, on the database that holds the rows,
    the task is written in the transaction that writes the row.

    Parameters
    ----------
    backend
        Its alias in ``TASKS``.
    """

    supports_queues = True

    def __init__(self, *, backend: str = "default", **options: Any) -> None:
        super().__init__(**options)
        self.alias = backend
        # Like every backend, it is made once; what it supports does not change.
        self.backend = backend_of(backend)
        self.supports_delays = bool(self.backend.supports_defer)
        self.supports_priorities = bool(self.backend.supports_priority)
        self.same_transaction = self._table() is not None

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        """Enqueue one task; its id is the job's."""
        from geneva_drive.dispatchers.django_tasks_entry import run_execution

        changes: dict[str, Any] = {"backend": self.alias, "queue_name": self.queue_for(options["queue"])}
        if self.supports_priorities:
            changes["priority"] = -max(-_MOST, min(_MOST, options["priority"]))
        if options["delay"] and self.supports_delays:
            # By this host's clock, which is the one that backends compare with.
            changes["run_after"] = clock.local(datetime.now(UTC) + timedelta(seconds=options["delay"]))
        result = run_execution.using(**changes).enqueue(message_id(execution_id), options["using"])
        return str(result.id)

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
        # Old versions of the framework put the enqueueing off until after the commit by themselves.
        return bool(getattr(self.backend, "enqueue_on_commit", False))

    def check(self) -> list[checks.CheckMessage]:
        """Queues that the backend does not declare, and a second layer of "after commit"."""
        found: list[checks.CheckMessage] = []
        # An empty list of queues allows all of them.
        declared = self.backend.queues
        missing = sorted({self.queue_for(queue) for queue in _queues()} - set(declared)) if declared else []
        if missing:
            found.append(
                checks.Error(
                    f"Steps use queues that TASKS[{self.alias!r}] does not declare: {', '.join(missing)}.",
                    hint=f"Add them to TASKS[{self.alias!r}]['QUEUES'], or map them to others with the "
                    "dispatcher's option 'queues'.",
                    id="geneva_drive.E071",
                )
            )
        if self._waits_itself():
            found.append(
                checks.Warning(
                    f"TASKS[{self.alias!r}] puts each enqueueing off until after the commit, which "
                    "geneva_drive does already.",
                    hint="Set 'ENQUEUE_ON_COMMIT': False, or use django-tasks 0.12 or newer.",
                    id="geneva_drive.W072",
                )
            )
        return found


def _queues() -> Iterator[str]:
    """Yield the queues that the declared workflows and their steps use."""
    yield settings.DEFAULT_QUEUE
    for cls in registry.all():
        for options in (cls._geneva.job_options, *(each.options for each in cls.steps.runnable)):
            if queue := options.get("queue"):
                yield queue
