"""The loop: claim no more than there are idle threads, run, sleep until woken."""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from typing import TYPE_CHECKING

from django.db import InterfaceError, OperationalError, connections, router

from geneva_drive.conf import settings
from geneva_drive.execution import executor
from geneva_drive.execution.giving_back import give_back
from geneva_drive.execution.heartbeat import Heartbeat
from geneva_drive.execution.recovery import recover_own
from geneva_drive.execution.runner import Runner
from geneva_drive.execution.timeouts import expire_due
from geneva_drive.lifecycle.locking import is_lost_connection
from geneva_drive.logs import about
from geneva_drive.models.workflow import Workflow
from geneva_drive.worker.claiming import Outlook, claim, is_anything_due
from geneva_drive.worker.keeping import Housekeeper
from geneva_drive.worker.listening import Listener, can_listen
from geneva_drive.worker.shutdown import handling_signals

if TYPE_CHECKING:
    from uuid import UUID

    from geneva_drive.execution.performing import Performance
    from geneva_drive.models.step_execution import StepExecution

__all__ = ["Worker"]

logger = logging.getLogger("geneva_drive.worker")

_EXPIRE_EVERY = 1.0  # seconds
_STALE_AFTER = 1.0  # seconds without use after which a connection is tried before a body gets it


class Worker:
    """Runs what is due on some queues of one database.

    Parameters
    ----------
    queues
        Names, or None for all.
    threads
        How many bodies run at the same time; each has its own connection.
    poll_interval
        Seconds between two looks when nothing wakes it.
    drain
        Return when nothing is due.
    max_steps
        Return after so many bodies.
    listen
        On PostgreSQL, hold a connection that is told at once of what is due. Off for poolers that do not
        support LISTEN.
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
        self.heartbeat = Heartbeat(self.using, "worker", queues=",".join(queues or []), after_beat=_answer)
        self.performed = 0
        self._outlook = Outlook(self.using, queues)
        self._budget = max_steps
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._todo: queue.SimpleQueue[Performance | None] = queue.SimpleQueue()
        self._busy = 0
        self._expired = time.monotonic() - _EXPIRE_EVERY

    # -- outside

    def run(self) -> int:
        """Run until stopped, drained or out of budget; return how many bodies were run."""
        listener = Listener(self.using, self.queues, self._wake) if self.listen else None
        pool = [
            threading.Thread(target=self._run_claimed, name=f"geneva-{number}", daemon=True)
            for number in range(self.threads)
        ]
        housekeeper = Housekeeper(self.using, self._stopping, self._wake.set)
        keeper = threading.Thread(target=housekeeper.run, name="geneva-housekeeping", daemon=True)
        with handling_signals(self.stop, self.heartbeat.mark_dead):
            self._start_heartbeat()
            for thread in (*pool, keeper, *([listener] if listener is not None else [])):
                thread.start()
            try:
                self._loop()
            finally:
                # Whatever ended the loop: bodies in hand come to their end.
                self._stop_pool(pool)
                if listener is not None:
                    listener.stop()
                keeper.join(timeout=settings.LEASE.total_seconds())
                self.heartbeat.stop()
                connections[self.using].close()
        return self.performed

    def stop(self) -> None:
        """Finish the steps in hand, then return from ``run``. May be called from any thread."""
        self._stopping.set()
        self._wake.set()

    # -- the loop

    def _start_heartbeat(self) -> None:
        pause = 0.5
        while not self._stopping.is_set():
            try:
                self.heartbeat.start()
                return
            except (OperationalError, InterfaceError) as error:
                pause = self._wait_for_database(error, pause)

    def _loop(self) -> None:
        pause = 0.5
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self._expire()
                found = self._claim()
                if not found and self._is_done():
                    return
                pause = 0.5
            except (OperationalError, InterfaceError) as error:
                pause = self._wait_for_database(error, pause)
                continue
            if not found:
                self._wake.wait(self.poll_interval)

    def _expire(self) -> None:
        """Let signals that did not come in time be missed, once a second at most: claims come more often."""
        if time.monotonic() - self._expired >= _EXPIRE_EVERY:
            self._expired = time.monotonic()
            expire_due(self.using)

    def _claim(self) -> int:
        """Claim for the idle threads; return how many bodies they were given."""
        with self._lock:
            idle = self.threads - self._busy
        if idle <= 0 or not self.heartbeat.is_alive():
            return 0
        places = self._take_places(idle)
        if not places:
            return 0
        claimed = 0
        try:
            for performance in claim(self.using, self._outlook, places, _WorkerRunner(self)):
                claimed += 1
                # Held from here on: no thread has it yet, but this process knows of it.
                self.heartbeat.hold(performance.token)
                with self._lock:
                    self._busy += 1
                self._todo.put(performance)
        finally:
            self._return_places(places - claimed)
        return claimed

    def _is_done(self) -> bool:
        with self._lock:
            if self._busy:
                return False
            if self._budget is not None and self._budget <= 0:
                return True
        # Nothing that is due may be left, also not what another worker had locked while we looked.
        return self.drain and not expire_due(self.using) and not is_anything_due(self.using, self.queues)

    def _take_places(self, wanted: int) -> int:
        """Take places for bodies out of the budget, up to so many, before anything is claimed for them."""
        with self._lock:
            if self._budget is None:
                return wanted
            taken = min(wanted, self._budget)
            self._budget -= taken
            return taken

    def _return_places(self, count: int) -> None:
        with self._lock:
            if self._budget is not None:
                self._budget += count

    def _wait_for_database(self, error: Exception, pause: float) -> float:
        """Let go of a connection that is lost; look again at once the first time, then ever less often."""
        connection = connections[self.using]
        lost = is_lost_connection(error, connection)
        connection.close()
        logger.warning("The database is out of reach (%s); looking again.", error)
        if not (lost and pause <= 0.5):
            self._stopping.wait(pause * random.uniform(0.5, 1))
        return min(pause * 2, 30.0)

    # -- the threads

    def _run_claimed(self) -> None:
        used = time.monotonic()
        while True:
            performance = self._todo.get()
            if performance is None:
                break
            runner = _WorkerRunner(self, has_place=True)
            try:
                if time.monotonic() - used > _STALE_AFTER:
                    _drop_dead_connections()
                executor.run(performance, runner)
            except BaseException as error:
                if error is not runner.raised:
                    # Not a step's: the executor has logged that, with the step that it was.
                    logger.error(
                        "Execution %s or what followed it could not be carried on.",
                        performance.execution.pk,
                        exc_info=error,
                        extra=about(performance.as_claimed(), performance.execution),
                    )
                _drop_dead_connections()
            finally:
                self.heartbeat.let_go(performance.token)
                runner.close()
                used = time.monotonic()
                with self._lock:
                    self._busy -= 1
                self._wake.set()
        connections.close_all()

    def _stop_pool(self, pool: list[threading.Thread]) -> None:
        # Claimed and not begun: taken from the queue before a thread can take it.
        self._stopping.set()
        while True:
            try:
                performance = self._todo.get_nowait()
            except queue.Empty:
                break
            if performance is None:
                continue
            try:
                give_back(performance)
            except Exception:
                # Recovery finds it; the bodies that still run are not left alone for it.
                extra = about(performance.as_claimed(), performance.execution)
                logger.exception(
                    "Execution %s could not be given back.", performance.execution.pk, extra=extra
                )
            self.heartbeat.let_go(performance.token)
        for _ in pool:
            self._todo.put(None)
        for thread in pool:
            thread.join()

    def _count_body(self) -> None:
        with self._lock:
            self.performed += 1


class _WorkerRunner(Runner):
    """A chain of steps in one of the worker's threads.

    Parameters
    ----------
    has_place
        Whether the budget has a place set aside for the first body.
    """

    def __init__(self, worker: Worker, *, has_place: bool = False) -> None:
        super().__init__()
        self._worker = worker
        # For the body that comes next and is not begun yet.
        self._has_place = has_place

    def close(self) -> None:
        """Give back the place of a body that did not come."""
        if self._has_place:
            self._has_place = False
            self._worker._return_places(1)

    @property
    def process_id(self) -> UUID:  # type: ignore[override]
        return self._worker.heartbeat.process_id

    def may_go_on(self, following: StepExecution, queue: str) -> bool:
        if not self.may_begin() or not super().may_go_on(following, queue):
            return False
        # Asked twice for one step when the short way of handing over gives up: one place all the same.
        self._has_place = self._has_place or self._worker._take_places(1) == 1
        return self._has_place

    def may_begin(self) -> bool:
        return not self._worker._stopping.is_set() and self._worker.heartbeat.is_alive()

    def should_stop(self) -> bool:
        return self._worker._stopping.is_set()

    def hold(self, token: UUID) -> None:
        self._has_place = False
        self._worker._count_body()
        self._worker.heartbeat.hold(token)

    def let_go(self, token: UUID) -> None:
        self._worker.heartbeat.let_go(token)


def _answer(heartbeat: Heartbeat) -> None:
    recover_own(heartbeat)


def _drop_dead_connections() -> None:
    """Close this thread's connections that a server or a pooler has dropped, before a body gets one."""
    for connection in connections.all(initialized_only=True):
        if (
            connection.connection is not None
            and not connection.in_atomic_block
            and not connection.is_usable()
        ):
            connection.close()
