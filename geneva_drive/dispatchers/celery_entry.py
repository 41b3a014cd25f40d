"""The one Celery task of the dispatcher, and what its worker processes need at their end.

Imported only where the settings name the Celery dispatcher.
"""

from __future__ import annotations

import mmap
from typing import Any

from celery import Task, shared_task, signals
from django.core.management import call_command

from geneva_drive.dispatchers.running import run
from geneva_drive.execution import heartbeat

_TRIES = 20

_stopping = mmap.mmap(-1, 1)
"""One byte that the processes of a pool share with the worker that forked them: not zero when it shuts down.
Only the parent is told of that, and a chain of steps in a child shall end with the step in hand."""


def _is_stopping() -> bool:
    return _stopping[0] != 0


def run_execution(self: Task, execution_id: int | str, using: str) -> None:
    """Run the execution with this key, in whatever process Celery calls it."""
    try:
        run(execution_id, using, kind="celery", is_stopping=_is_stopping)
    except Exception as error:
        if self.request.is_eager:
            raise
        # Nothing was begun: the database is out of reach, most likely. When it stays away for longer, the
        # row is due all the same, and housekeeping sends it.
        raise self.retry(exc=error, countdown=min(60, 2**self.request.retries)) from error


_task: Any = None


def task(options: dict[str, Any]) -> Any:
    """Return the task, registered with the options that the settings give for it."""
    global _task
    if _task is None:
        # With the options from the start: to set them later would take an app that is ready, and this is
        # called while Django is still being set up.
        decorate = shared_task(
            name="geneva_drive.run_execution", bind=True, ignore_result=True, max_retries=_TRIES, **options
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


# -- the ends of processes


def _stop_heartbeats(**_: Any) -> None:
    # The children of a pool leave without running what atexit holds.
    heartbeat.stop_all()


def _note_stopping(**_: Any) -> None:
    _stopping[0] = 1


def _note_start(**_: Any) -> None:
    _stopping[0] = 0


signals.worker_process_shutdown.connect(_stop_heartbeats, weak=False)
signals.worker_shutdown.connect(_stop_heartbeats, weak=False)
signals.worker_shutting_down.connect(_note_stopping, weak=False)
signals.worker_init.connect(_note_start, weak=False)
