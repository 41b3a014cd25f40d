"""When a loop has to stop, and when it writes where it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from geneva_drive import clock

if TYPE_CHECKING:
    from geneva_drive.definition.collection import StepDefinition
    from geneva_drive.execution.runner import Runner

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """When one execution of a loop has to give way, and how often it writes its cursor.

    ``checkpoint_every`` is a number of items or a duration. ``max_runtime`` counts from when the body began.
    """

    should_stop: Callable[[], bool]
    max_iterations: int | None = None
    max_runtime: timedelta | None = None
    checkpoint_every: int | timedelta = 1

    @classmethod
    def of(cls, definition: StepDefinition, runner: Runner) -> Limits:
        """Return the limits of a step and of who runs it; the smaller number of items counts."""
        own = definition.max_iterations if runner.honours_limits else None
        most = min((each for each in (own, runner.most_iterations) if each is not None), default=None)
        runtime = definition.max_runtime if runner.honours_limits else None
        return cls(runner.should_stop, most, runtime, definition.checkpoint_every)

    def is_due(self, unwritten: int, written_at: float) -> bool:
        """Whether to write the cursor, so many items and at that time (of the stopwatch) after the last one."""
        if isinstance(self.checkpoint_every, int):
            return unwritten >= self.checkpoint_every
        return clock.stopwatch() - written_at >= self.checkpoint_every.total_seconds()

    def reason_to_stop(self, done: int, began: float) -> str | None:
        """Why this process has to stop after so many items; never before there is one."""
        if not done:
            return None
        if self.max_iterations is not None and done >= self.max_iterations:
            return "max_iterations"
        if self.max_runtime is not None and clock.stopwatch() - began >= self.max_runtime.total_seconds():
            return "max_runtime"
        return "shutdown" if self.should_stop() else None
