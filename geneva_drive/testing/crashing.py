"""The death of the process that runs a step, at a point of the test's choice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from geneva_drive.execution.runner import Runner

__all__ = ["POINTS", "ProcessKilled", "crash_at"]

POINTS = ("prepared", "performed", "finalizing", "finalized")
"""Where ``crash_at`` can stop a process: the execution is in progress and its body not begun; the body has
run; its end is written and not committed; its end is committed."""


class ProcessKilled(BaseException):
    """What ``crash_at`` raises in place of the process's death; nothing records it."""

    simulates_death = True


@contextlib.contextmanager
def crash_at(point: str) -> Iterator[None]:
    """Let the process "die" at ``point`` within the block: see `POINTS`.

    The block ends there, quietly; rows stay as a killed process leaves them. What comes next is up to
    recovery: ``geneva_drive.housekeeping.recover`` after a ``travel`` beyond ``STUCK_AFTER``.

    Raises
    ------
    AssertionError
        The block came to its end without passing the point.
    """
    if point not in POINTS:
        raise ValueError(f"{point!r} is no point to crash at. There are: {', '.join(POINTS)}.")

    def die(reached: str) -> None:
        if reached == point:
            raise ProcessKilled(point)

    before = Runner.at_failpoint
    Runner.at_failpoint = die
    try:
        yield
    except ProcessKilled:
        return
    finally:
        Runner.at_failpoint = before
    raise AssertionError(f"The block did not come to the point {point!r}.")
