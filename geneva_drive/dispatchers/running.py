"""The receiving end of every dispatcher: a job arrives in some process, and ``run()`` runs its execution.

It starts the process's heartbeat, records the process on what it runs, and looks after the connections.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import connections, router

from geneva_drive.exceptions import DispatcherError
from geneva_drive.execution import heartbeat as heartbeats
from geneva_drive.execution.executor import execute
from geneva_drive.execution.heartbeat import Heartbeat
from geneva_drive.execution.recovery import recover_own
from geneva_drive.execution.runner import STALE_AFTER, ProcessRunner, drop_dead_connections
from geneva_drive.lifecycle import dispatch
from geneva_drive.logs import about
from geneva_drive.models.step_execution import StepExecution

logger = logging.getLogger("geneva_drive.dispatch")

_thread = threading.local()


def message_id(execution_id: Any) -> int | str:
    """Return an execution's key in a form that JSON can carry."""
    return execution_id if isinstance(execution_id, int) else str(execution_id)


def run(
    execution_id: Any,
    using: str | None = None,
    *,
    kind: str,
    heartbeat: bool = True,
    is_stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Run an execution that a job named, and the steps that continue inline after it.

    A job that arrives twice, too early or too late changes nothing. What a step raises is recorded and logged,
    and not raised: the workflow's policy has decided, and the job system must not retry. Called from within a
    step of this thread (by a dispatcher that runs at once), the execution waits until that step has ended.

    Parameters
    ----------
    execution_id
        As it was given to ``enqueue``, or as ``message_id()`` made it.
    using
        Alias of the database that holds the rows. None: what the routers say.
    kind
        The dispatcher's name, for the row of this process.
    is_stopping
        Asked before each further step: whether this process is shutting down.

    Raises
    ------
    Exception
        The database was unavailable before anything was started: the job may be retried.
    DispatcherError
        The job is not ours: its alias or its key is unknown.
    """
    alias = using or router.db_for_write(StepExecution)
    if alias not in connections:
        raise DispatcherError(
            f"A queued job refers to the database {alias!r}, which is not in DATABASES of this process."
        )
    try:
        pk = StepExecution._meta.pk.to_python(execution_id)
        if pk is None:
            raise ValueError("it is None")
    except Exception as error:
        raise DispatcherError(
            f"A queued job has {execution_id!r} for an execution's id, which it cannot be."
        ) from error
    queue: deque[tuple[Any, str]] | None = getattr(_thread, "queue", None)
    if queue is not None:
        queue.append((pk, alias))
        return
    _thread.queue = queue = deque([(pk, alias)])
    problems: list[Exception] = []
    try:
        while queue:
            try:
                _run_one(*queue.popleft(), kind, heartbeat, is_stopping)
            except Exception as error:  # noqa: BLE001 - raised below, after the others had their turn
                problems.append(error)
        if problems:
            raise problems[0]
    finally:
        del _thread.queue
        _thread.used = time.monotonic()


def _run_one(pk: Any, using: str, kind: str, with_heartbeat: bool, is_stopping: Callable[[], bool]) -> None:
    if time.monotonic() - getattr(_thread, "used", 0.0) >= STALE_AFTER:
        drop_dead_connections()
    heartbeat = heartbeats.ensure(using, kind, after_beat=recover_own) if with_heartbeat else None
    if heartbeat is not None and not heartbeat.is_alive():
        # It missed its lease while the machine was suspended or the database gone. It has to beat before it
        # starts a step; a job that was put back instead would come round and round.
        heartbeat.beat()
    runner = DispatchedRunner(heartbeat, is_stopping)
    try:
        execute(pk, using=using, runner=runner)
    except Exception as error:
        if error is runner.raised:
            return  # a step's, recorded and logged
        if not runner.has_begun:
            raise
        logger.error(
            "Internal error while running execution %s or a step that continued from it.",
            pk,
            exc_info=error,
            extra=about(execution_id=pk),
        )


class DispatchedRunner(ProcessRunner):
    """A chain of steps that started with a dispatcher's job."""

    def __init__(self, heartbeat: Heartbeat | None, is_stopping: Callable[[], bool] = lambda: False) -> None:
        super().__init__(heartbeat, is_stopping)
        self.has_begun = False
        self._until: float | None = None
        with contextlib.suppress(DispatcherError):
            limit = getattr(dispatch.configured_dispatcher(), "inline_continuation_for", None)
            self._until = None if limit is None else time.monotonic() + limit.total_seconds()

    def may_continue_inline(self, following: StepExecution, queue: str) -> bool:
        if self._until is not None and time.monotonic() >= self._until:
            return False
        return super().may_continue_inline(following, queue)

    def track(self, token: UUID) -> None:
        self.has_begun = True
        super().track(token)


atexit.register(heartbeats.stop_all)
