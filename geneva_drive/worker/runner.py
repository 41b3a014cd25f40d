"""How far a chain of steps may go on in one of the worker's threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from uuid import UUID

from geneva_drive.execution.heartbeat import Heartbeat
from geneva_drive.execution.runner import Runner
from geneva_drive.worker.budget import Budget

if TYPE_CHECKING:
    from geneva_drive.models.step_execution import StepExecution

__all__ = ["WorkerRunner"]


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

    def may_go_on(self, following: StepExecution, queue: str) -> bool:
        if not self.may_begin() or not super().may_go_on(following, queue):
            return False
        # Asked twice for one step when the short way of handing over gives up: one place all the same.
        self._has_place = self._has_place or self._budget.take(1) == 1
        return self._has_place

    def may_begin(self) -> bool:
        return not self._stopping.is_set() and self._heartbeat.is_alive()

    def should_stop(self) -> bool:
        return self._stopping.is_set()

    def hold(self, token: UUID) -> None:
        self._has_place = False
        self._budget.count_body()
        self._heartbeat.hold(token)

    def let_go(self, token: UUID) -> None:
        self._heartbeat.let_go(token)
