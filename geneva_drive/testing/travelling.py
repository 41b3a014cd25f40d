"""The clock of a test: moved on within a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta

from geneva_drive import clock
from geneva_drive.models.step_execution import StepExecution

__all__ = ["due_at", "travel"]


@contextlib.contextmanager
def travel(delta: timedelta) -> Iterator[None]:
    """Move the library's one clock by ``delta`` within the block. Blocks add up."""
    clock._travelled += delta
    try:
        yield
    finally:
        clock._travelled -= delta


@contextlib.contextmanager
def due_at(execution: StepExecution, using: str) -> Iterator[None]:
    """Stand at the moment when the execution is due, if that is still ahead."""
    ahead = clock.utc(execution.scheduled_for) - clock.now(using)
    if ahead < timedelta(0):
        yield
        return
    # A little beyond: databases keep microseconds, and "due" is not "exactly now".
    with travel(ahead + timedelta(milliseconds=1)):
        yield
