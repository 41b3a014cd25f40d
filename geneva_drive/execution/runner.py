"""The runner of a chain of steps: whether it may continue, and the points at which a test may let it die."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar
from uuid import UUID

from django.db import connections

from geneva_drive.conf import settings
from geneva_drive.execution.heartbeat import Heartbeat
from geneva_drive.models.step_execution import StepExecution

STALE_AFTER = 1.0
"""Seconds without use after which a thread tests its connections before it runs a body."""


def drop_dead_connections() -> None:
    """Close this thread's dead connections, so that the next use makes new ones."""
    for connection in connections.all(initialized_only=True):
        if (
            connection.connection is not None
            and not connection.in_atomic_block
            and not connection.is_usable()
        ):
            connection.close()


class Runner:
    """Runs a chain of steps: one execution, and those that follow it in this process.

    A dispatcher or the worker makes one for each chain; the testing kit has its own. The base
    class runs a chain to its end, names no process, and is what ``execute()`` uses by default.
    """

    process_id: UUID | None = None
    #: Called at each failpoint, for the testing kit: "prepared", "performed", "finalizing" (nothing is
    #: committed yet), "finalized".
    at_failpoint: ClassVar[Callable[[str], None] | None] = None
    #: The step's exception that was raised last. It has been logged.
    raised: BaseException | None = None
    #: Items after which a resumable step stops, in addition to its own limit. For the testing kit.
    most_iterations: int | None = None
    #: Whether a resumable step's own limits count. For the testing kit.
    honours_limits: bool = True

    def __init__(self, *, inline_continuation: bool | None = None) -> None:
        self._inline_continuation = inline_continuation

    def may_continue_inline(self, following: StepExecution, queue: str) -> bool:
        """Whether the next step, due now, may run here and now."""
        inline = self._inline_continuation
        return (settings.INLINE_CONTINUATION if inline is None else inline) and following.queue == queue

    def may_begin(self) -> bool:
        """Whether a body may begin: not in a process that missed its lease."""
        return True

    def should_stop(self) -> bool:
        """Whether this process is shutting down: a resumable step stops at its next item."""
        return False

    def failpoint(self, name: str) -> None:
        """Pass the failpoint of this name."""
        if Runner.at_failpoint is not None:
            Runner.at_failpoint(name)

    def track(self, token: UUID) -> None:
        """Note that a thread of this process runs the execution with this token."""

    def untrack(self, token: UUID) -> None:
        """Note that no thread runs it any more."""


class ProcessRunner(Runner):
    """A runner for a process with a heartbeat, which may be asked to shut down.

    Parameters
    ----------
    heartbeat
        This process's; None inside a caller's transaction, where no other process could see its row.
    is_stopping
        Whether the process is shutting down.
    """

    def __init__(self, heartbeat: Heartbeat | None, is_stopping: Callable[[], bool]) -> None:
        super().__init__()
        self._heartbeat = heartbeat
        self._is_stopping = is_stopping

    @property
    def process_id(self) -> UUID | None:  # type: ignore[override]
        # It changes when a heartbeat registers anew.
        return self._heartbeat.process_id if self._heartbeat is not None else None

    def may_continue_inline(self, following: StepExecution, queue: str) -> bool:
        return not self.should_stop() and self.may_begin() and super().may_continue_inline(following, queue)

    def may_begin(self) -> bool:
        return self._heartbeat is None or self._heartbeat.is_alive()

    def should_stop(self) -> bool:
        return self._is_stopping()

    def track(self, token: UUID) -> None:
        if self._heartbeat is not None:
            self._heartbeat.track(token)

    def untrack(self, token: UUID) -> None:
        if self._heartbeat is not None:
            self._heartbeat.untrack(token)
