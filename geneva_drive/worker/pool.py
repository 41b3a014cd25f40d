"""How many bodies a worker may still run, shared by its threads."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from uuid import UUID

from django.db import connections

from geneva_drive.execution import executor
from geneva_drive.execution.heartbeat import Heartbeat
from geneva_drive.execution.perform import ClaimedExecution
from geneva_drive.execution.recovery import release
from geneva_drive.execution.runner import STALE_AFTER, Runner, drop_dead_connections
from geneva_drive.logs import about
from geneva_drive.models.step_execution import StepExecution


class Budget:
    """Places for bodies: taken before anything is claimed for them, put back when no body came.

    Parameters
    ----------
    places
        None for no limit.

    Attributes
    ----------
    performed
        Bodies that were begun.
    """

    def __init__(self, places: int | None) -> None:
        self._places = places
        self._lock = threading.Lock()
        self.performed = 0

    def __repr__(self) -> str:
        return f"<Budget: {self._places} left, {self.performed} performed>"

    @property
    def left(self) -> int | None:
        """Places that nobody has taken; None for no limit."""
        return self._places

    def take(self, wanted: int) -> int:
        """Take up to so many places; return how many there were."""
        with self._lock:
            if self._places is None:
                return wanted
            taken = min(wanted, self._places)
            self._places -= taken
            return taken

    def put_back(self, count: int) -> None:
        """Give places back for which no body came."""
        with self._lock:
            if self._places is not None:
                self._places += count

    def count_body(self) -> None:
        """Note that a body begins."""
        with self._lock:
            self.performed += 1


class WorkerRunner(Runner):
    """A chain of steps in one of the worker's threads.

    Parameters
    ----------
    stopping
        Set when the worker shuts down.
    has_place
        Whether the budget has a place set aside for the first body.
    """

    def __init__(
        self, heartbeat: Heartbeat, budget: Budget, stopping: threading.Event, *, has_place: bool = False
    ) -> None:
        super().__init__()
        self._heartbeat = heartbeat
        self._budget = budget
        self._stopping = stopping
        # For the body that comes next and is not begun yet.
        self._has_place = has_place

    def close(self) -> None:
        """Give back the place of a body that did not come."""
        if self._has_place:
            self._has_place = False
            self._budget.put_back(1)

    @property
    def process_id(self) -> UUID:  # type: ignore[override]
        return self._heartbeat.process_id

    def may_continue_inline(self, following: StepExecution, queue: str) -> bool:
        if not self.may_begin() or not super().may_continue_inline(following, queue):
            return False
        # Asked twice for one step when the short way of handing over gives up: one place all the same.
        self._has_place = self._has_place or self._budget.take(1) == 1
        return self._has_place

    def may_begin(self) -> bool:
        return not self._stopping.is_set() and self._heartbeat.is_alive()

    def should_stop(self) -> bool:
        return self._stopping.is_set()

    def track(self, token: UUID) -> None:
        self._has_place = False
        self._budget.count_body()
        self._heartbeat.track(token)

    def untrack(self, token: UUID) -> None:
        self._heartbeat.untrack(token)


logger = logging.getLogger("geneva_drive.worker")


class Pool:
    """Threads that run bodies, each on a connection of its own.

    Parameters
    ----------
    make_runner
        Called for each chain of steps; the budget has a place set aside for its first body.
    became_idle
        Called when a thread has come to the end of a chain.
    """

    def __init__(
        self,
        threads: int,
        heartbeat: Heartbeat,
        make_runner: Callable[[], WorkerRunner],
        became_idle: Callable[[], None],
    ) -> None:
        self._count = threads
        self._heartbeat = heartbeat
        self._make_runner = make_runner
        self._became_idle = became_idle
        self._lock = threading.Lock()
        self._busy = 0
        self._todo: queue.SimpleQueue[ClaimedExecution | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    @property
    def idle(self) -> int:
        """Threads that have nothing to run."""
        with self._lock:
            return self._count - self._busy

    @property
    def is_busy(self) -> bool:
        """Whether a thread has something to run."""
        with self._lock:
            return self._busy > 0

    def start(self) -> None:
        """Start the threads."""
        self._threads = [
            threading.Thread(target=self._run, name=f"geneva-{number}", daemon=True)
            for number in range(self._count)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, claimed: ClaimedExecution) -> None:
        """Give an idle thread what was claimed for it."""
        # Held from here on: no thread has it yet, but this process knows of it.
        self._heartbeat.track(claimed.token)
        with self._lock:
            self._busy += 1
        self._todo.put(claimed)

    def stop(self) -> None:
        """Give back what no thread has begun, and wait until the bodies in hand have come to their end."""
        while True:
            # Taken from the queue before a thread can take it.
            try:
                claimed = self._todo.get_nowait()
            except queue.Empty:
                break
            if claimed is not None:
                self._release(claimed)
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            thread.join()

    def _release(self, claimed: ClaimedExecution) -> None:
        try:
            release(claimed)
        except Exception:
            # Recovery finds it; the bodies that still run are not left alone for it.
            extra = about(claimed.as_claimed(), claimed.execution)
            logger.exception("Execution %s could not be given back.", claimed.execution.pk, extra=extra)
        self._heartbeat.untrack(claimed.token)

    def _run(self) -> None:
        used = time.monotonic()
        while True:
            claimed = self._todo.get()
            if claimed is None:
                break
            runner = self._make_runner()
            try:
                if time.monotonic() - used > STALE_AFTER:
                    drop_dead_connections()
                executor.run(claimed, runner)
            except BaseException as error:
                if error is not runner.raised:
                    # Not a step's: the executor has logged that, with the step that it was.
                    logger.error(
                        "Execution %s or what followed it could not be carried on.",
                        claimed.execution.pk,
                        exc_info=error,
                        extra=about(claimed.as_claimed(), claimed.execution),
                    )
                drop_dead_connections()
            finally:
                self._heartbeat.untrack(claimed.token)
                runner.close()
                used = time.monotonic()
                with self._lock:
                    self._busy -= 1
                self._became_idle()
        connections.close_all()
