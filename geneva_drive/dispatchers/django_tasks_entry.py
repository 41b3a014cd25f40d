"""The one task that the Django Tasks dispatcher enqueues. Backends find it by the path of this module."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from geneva_drive.dispatchers.running import run
from geneva_drive.exceptions import DispatcherError
from geneva_drive.lifecycle import dispatch


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
    try:
        return tasks_module().task_backends[alias]
    except (ImproperlyConfigured, ImportError) as error:
        raise DispatcherError(f"TASKS has no usable backend {alias!r}: {error}") from error


def _run_execution(execution_id: int | str, using: str) -> None:
    run(execution_id, using, kind="django_tasks")


_run_execution.__qualname__ = _run_execution.__name__ = "run_execution"


def _make_task() -> Any:
    # A task is checked against a backend when it is made, and projects name theirs as they like. Whoever
    # enqueues or runs it sets the right backend again.
    aliases = list(tasks_module().task_backends.settings)
    preferred = getattr(dispatch.configured_dispatcher(), "alias", None)
    for alias in sorted(aliases, key=lambda alias: alias != preferred):
        try:
            backend = backend_of(alias)
        except DispatcherError:
            continue
        names = backend.queues or {"default"}
        queue = "default" if "default" in names else min(names)
        return backend.task_class(func=_run_execution, backend=alias, queue_name=queue, priority=0)
    raise DispatcherError("TASKS has no usable backend.")


def __getattr__(name: str) -> Any:
    # ``run_execution`` is made on first use: the dispatcher imports this module before TASKS can be read.
    if name != "run_execution":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    task = globals()[name] = _make_task()
    return task
