"""The one task that the Django Tasks dispatcher enqueues. Backends find it by the path of this module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from geneva_drive.dispatchers.django_tasks import DjangoTasks, backend_of, tasks_module
from geneva_drive.dispatchers.running import run
from geneva_drive.exceptions import DispatcherError
from geneva_drive.lifecycle import dispatch


def _run_execution(execution_id: int | str, using: str) -> None:
    """Run the execution with this key, in whatever process the backend calls it."""
    run(execution_id, using, kind="django_tasks")


def _as_task(function: Any) -> Any:
    # A task is checked against a backend when it is made, and no backend is sure to exist: projects name
    # theirs. Whoever enqueues or runs it names the right one again.
    for alias in _aliases():
        try:
            backend = backend_of(alias)
        except DispatcherError:
            continue
        names = backend.queues or {"default"}
        queue = "default" if "default" in names else min(names)
        return backend.task_class(func=function, backend=alias, queue_name=queue, priority=0)
    raise DispatcherError("TASKS has no usable backend.")


def _aliases() -> Iterator[str]:
    dispatcher = dispatch.configured_dispatcher()
    if isinstance(dispatcher, DjangoTasks):
        yield dispatcher.alias
    yield from tasks_module().task_backends.settings


# Backends find the task again by its function's path.
_run_execution.__qualname__ = _run_execution.__name__ = "run_execution"
run_execution: Any = _as_task(_run_execution)
