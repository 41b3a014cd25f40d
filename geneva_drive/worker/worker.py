"""The worker's loop: claim an execution for each idle thread, run them, sleep until woken."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from django.db import InterfaceError, OperationalError, connections, router

from geneva_drive.conf import settings
from geneva_drive.execution.heartbeat import Heartbeat
from geneva_drive.execution.recovery import recover_own
from geneva_drive.execution.signal_timeouts import expire_due
from geneva_drive.lifecycle.locking import is_lost_connection, is_missing_table
from geneva_drive.models.workflow import Workflow
from geneva_drive.worker.claiming import CandidateCache, claim, is_anything_due
from geneva_drive.worker.listening import Listener, can_listen
from geneva_drive.worker.maintenance import Maintenance
from geneva_drive.worker.pool import Budget, Pool, WorkerRunner
from geneva_drive.worker.shutdown import handling_signals

logger = logging.getLogger("geneva_drive.worker")

_T = TypeVar("_T")

_EXPIRE_EVERY = 1.0
"""Seconds between two looks for signals that did not arrive in time; claims are more frequent."""


class Worker:
    """Runs the executions that are due on some queues of one database.

    Parameters
    ----------
    queues
        Names, or None for all.
    threads
        How many steps run at the same time, each on its own connection.
    poll_interval
        Seconds between two claims when nothing wakes the worker.
    drain
        Return when nothing is due.
    max_steps
        Return after so many steps.
    listen
        On PostgreSQL, be woken for what is due, on an extra connection. Off for poolers without LISTEN.
    """

    def __init__(
        self,
        *,
        using: str | None = None,
        queues: list[str] | None = None,
        threads: int = 1,
        poll_interval: float = 1.0,
        drain: bool = False,
        max_steps: int | None = None,
        listen: bool = True,
    ) -> None:
        self.using = using or router.db_for_write(Workflow)
        self.queues = queues
        self.threads = threads
        self.poll_interval = poll_interval
        self.drain = drain
        self.listen = listen and can_listen(self.using)
        self.heartbeat = Heartbeat(
            self.using, "worker", queues=",".join(queues or []), after_beat=recover_own
        )
        self._candidates = CandidateCache(self.using, queues)
        self._budget = Budget(max_steps)
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._pool = Pool(threads, self.heartbeat, partial(self._runner, has_place=True), self._wake.set)
        self._expired = time.monotonic() - _EXPIRE_EVERY

    def run(self) -> int:
        """Run until stopped, drained, or after ``max_steps``; return how many steps were run."""
        listener = Listener(self.using, self.queues, self._wake) if self.listen else None
        maintenance = threading.Thread(
            target=Maintenance(self.using, self._stopping, self._wake.set).run,
            name="geneva-maintenance",
            daemon=True,
        )
        with handling_signals(self.stop, self.heartbeat.mark_dead):
            self._retry(self.heartbeat.start)
            self._pool.start()
            maintenance.start()
            if listener is not None:
                listener.start()
            try:
                self._loop()
            finally:
                # Whatever ended the loop, running steps are finished.
                self._stopping.set()
                self._pool.stop()
                if listener is not None:
                    listener.stop()
                maintenance.join(timeout=settings.LEASE.total_seconds())
                self.heartbeat.stop()
                connections[self.using].close()
        return self._budget.performed

    def stop(self) -> None:
        """Finish the running steps, then return from ``run``. May be called from any thread."""
        self._stopping.set()
        self._wake.set()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            found = self._retry(self._look)
            if found is None:
                return
            if not found:
                self._wake.wait(self.poll_interval)

    def _retry(self, act: Callable[[], _T]) -> _T | None:
        """Call ``act`` until the database is available and return what it returns; None at shutdown."""
        pause = 0.5
        while not self._stopping.is_set():
            try:
                return act()
            except (OperationalError, InterfaceError) as error:
                if is_missing_table(error):
                    raise  # an OperationalError on SQLite only, and waiting does not help
                connection = connections[self.using]
                lost = is_lost_connection(error, connection)
                connection.close()
                logger.warning("Database unavailable, retrying: %s", error)
                # The first time at once, since a new connection may be all that is needed.
                if not (lost and pause <= 0.5):
                    self._stopping.wait(pause * random.uniform(0.5, 1))
                pause = min(pause * 2, 30.0)
        return None

    def _look(self) -> int | None:
        """Look once for what is due; return how much was claimed, or None when the worker is done."""
        if time.monotonic() - self._expired >= _EXPIRE_EVERY:
            self._expired = time.monotonic()
            expire_due(self.using)
        found = self._claim()
        return None if not found and self._is_done() else found

    def _claim(self) -> int:
        """Claim for the idle threads; return how many executions they were given."""
        idle = self._pool.idle
        if idle <= 0 or not self.heartbeat.is_alive():
            return 0
        places = self._budget.take(idle)
        if not places:
            return 0
        count = 0
        try:
            for claimed in claim(self.using, self._candidates, places, self._runner()):
                count += 1
                self._pool.put(claimed)
        finally:
            self._budget.put_back(places - count)
        return count

    def _is_done(self) -> bool:
        if self._pool.is_busy:
            return False
        if self._budget.left == 0:
            return True
        # What another worker had locked while this one claimed may be left.
        return self.drain and not expire_due(self.using) and not is_anything_due(self.using, self.queues)

    def _runner(self, *, has_place: bool = False) -> WorkerRunner:
        return WorkerRunner(self.heartbeat, self._budget, self._stopping, has_place=has_place)
