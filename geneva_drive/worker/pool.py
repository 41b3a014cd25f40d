"""The worker's threads, what each of them runs, and how many steps a worker may still run."""

from __future__ import annotations

import contextlib
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
from geneva_drive.execution.runner import STALE_AFTER, ProcessRunner, drop_dead_connections
from geneva_drive.logs import about
from geneva_drive.models.step_execution import StepExecution

logger = logging.getLogger("geneva_drive.worker")


class Budget:
    """How many steps may still run: places are taken before a claim, and put back when no step needed them.

    ``left`` are the places that can be taken, None for no limit; ``performed`` are the steps that were started.
    """

    def __init__(self, places: int | None) -> None:
        self.left = places
        self.performed = 0
        self._lock = threading.Lock()

    def take(self, wanted: int) -> int:
        """Take up to ``wanted`` places; return how many."""
        with self._lock:
            if self.left is None:
                return wanted
            taken = min(wanted, self.left)
            self.left -= taken
            return taken

    def put_back(self, count: int) -> None:
        with self._lock:
            if self.left is not None:
                self.left += count

    def count_step(self) -> None:
        with self._lock:
            self.performed += 1


class WorkerRunner(ProcessRunner):
    """A chain of steps in one of the worker's threads; the budget may have a place for its first step."""

    def __init__(
        self, heartbeat: Heartbeat, budget: Budget, stopping: threading.Event, *, has_place: bool = False
    ) -> None:
        super().__init__(heartbeat, stopping.is_set)
        self._budget = budget
        # For the next step, until it starts.
        self._has_place = has_place

    def close(self) -> None:
        """Put back the place of a step that did not start."""
        if self._has_place:
            self._has_place = False
            self._budget.put_back(1)

    def may_continue_inline(self, following: StepExecution, queue: str) -> bool:
        if not super().may_continue_inline(following, queue):
            return False
        # Asked twice for one step when the fast path gives up: it needs only one place.
        self._has_place = self._has_place or self._budget.take(1) == 1
        return self._has_place

    def may_begin(self) -> bool:
        return not self.should_stop() and super().may_begin()

    def track(self, token: UUID) -> None:
        self._has_place = False
        self._budget.count_step()
        super().track(token)


class Pool:
    """Threads that run steps, each with database connections of its own.

    Not a ``ThreadPoolExecutor``: its threads have no hook at their end, so they could not close their connections.

    Parameters
    ----------
    make_runner
        Called for each chain of steps; the budget has reserved a place for its first step.
    became_idle
        Called when a thread has finished a chain.
    """

    def __init__(
        self,
        threads: int,
        heartbeat: Heartbeat,
        make_runner: Callable[[], WorkerRunner],
        became_idle: Callable[[], None],
    ) -> None:
        self._heartbeat = heartbeat
        self._make_runner = make_runner
        self._became_idle = became_idle
        self._lock = threading.Lock()
        self._idle = threads
        self._todo: queue.SimpleQueue[ClaimedExecution | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"geneva-{number}", daemon=True)
            for number in range(threads)
        ]

    @property
    def idle(self) -> int:
        """Threads that have nothing to run."""
        return self._idle

    @property
    def is_busy(self) -> bool:
        return self._idle < len(self._threads)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def put(self, claimed: ClaimedExecution) -> None:
        """Give an idle thread what was claimed for it."""
        # Tracked before a thread has it, so that recovery does not take it for abandoned.
        self._heartbeat.track(claimed.token)
        with self._lock:
            self._idle -= 1
        self._todo.put(claimed)

    def stop(self) -> None:
        """Release what no thread has started, and wait until the running steps have finished."""
        with contextlib.suppress(queue.Empty):
            while claimed := self._todo.get_nowait():
                try:
                    release(claimed)
                except Exception:
                    # Recovery will find it. The running steps still have to be waited for.
                    extra = about(claimed.as_claimed(), claimed.execution)
                    logger.exception("Execution %s could not be released.", claimed.execution.pk, extra=extra)
                self._heartbeat.untrack(claimed.token)
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _run(self) -> None:
        used = time.monotonic()
        while (claimed := self._todo.get()) is not None:
            runner = self._make_runner()
            try:
                if time.monotonic() - used > STALE_AFTER:
                    drop_dead_connections()
                executor.run(claimed, runner)
            except BaseException as error:
                if error is not runner.raised:  # a step's own has been logged by the executor
                    logger.error(
                        "Internal error while running execution %s or a step that continued from it.",
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
                    self._idle += 1
                self._became_idle()
        connections.close_all()
