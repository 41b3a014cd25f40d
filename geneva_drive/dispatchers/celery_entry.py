"""The Celery tasks of the dispatcher, and what its worker processes do when they end.

Imported only where the settings name the Celery dispatcher.
"""

from __future__ import annotations

import mmap
from typing import Any

from celery import Task, shared_task, signals
from django.core.management import call_command

from geneva_drive.dispatchers.running import run
from geneva_drive.execution import heartbeat

_stopping = mmap.mmap(-1, 1)
"""One byte that a worker shares with the processes of its pool: not zero while it shuts down. Celery tells only
the parent, and a chain of steps in a child has to end with the running step."""


def run_execution(self: Task, execution_id: int | str, using: str) -> None:
    """Run the execution with this key."""
    try:
        run(execution_id, using, kind="celery", is_stopping=lambda: _stopping[0] != 0)
    except Exception as error:
        if self.request.is_eager:
            raise
        # No step was started, most likely since the database is unavailable. When the retries are used up,
        # the row is still due, and housekeeping sends it again.
        raise self.retry(exc=error, countdown=min(60, 2**self.request.retries)) from error


_task: Any = None


def task(options: dict[str, Any]) -> Any:
    """Return the task, registered with the options that the settings give for it."""
    global _task
    if _task is None:
        # With the options at once: they cannot be set later until the app is ready, and this is called while
        # Django is still being set up.
        decorate = shared_task(
            name="geneva_drive.run_execution", bind=True, ignore_result=True, max_retries=20, **options
        )
        _task = decorate(run_execution)
    elif _task.app.finalized:
        for name, value in options.items():
            setattr(_task, name, value)
    return _task


def _maintenance() -> None:
    """One pass of ``geneva_housekeeping``, for Celery's own beat."""
    call_command("geneva_housekeeping", verbosity=0)


maintenance: Any = shared_task(name="geneva_drive.maintenance", ignore_result=True)(_maintenance)


def _stop_heartbeats(**_: Any) -> None:
    # The children of a pool end without running atexit handlers.
    heartbeat.stop_all()


def _set_stopping(**_: Any) -> None:
    _stopping[0] = 1


def _clear_stopping(**_: Any) -> None:
    _stopping[0] = 0


signals.worker_process_shutdown.connect(_stop_heartbeats, weak=False)
signals.worker_shutdown.connect(_stop_heartbeats, weak=False)
signals.worker_shutting_down.connect(_set_stopping, weak=False)
signals.worker_init.connect(_clear_stopping, weak=False)
