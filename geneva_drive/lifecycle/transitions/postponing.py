"""An execution is not to run yet: held for a pause, moved in time, or put off by code that cannot run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geneva_drive import clock
from geneva_drive.lifecycle.transitions.attempts import NO_ERROR, note_error
from geneva_drive.lifecycle.transitions.writing import change

if TYPE_CHECKING:
    from datetime import datetime

    from geneva_drive.definition.decisions import ErrorRecord
    from geneva_drive.models.step_execution import StepExecution

__all__ = ["defer", "hold", "note_unknown", "release", "reschedule", "unhold"]


def hold(execution: StepExecution) -> None:
    """Take a scheduled or waiting execution of a paused workflow out of the scans' sight.

    On one in progress it is the mark that a pause or cancel waits for it: its next checkpoint stops there.
    """
    change(execution, held=True)


def unhold(execution: StepExecution) -> None:
    """Take back the mark on an execution in progress."""
    change(execution, held=False)


def release(execution: StepExecution) -> None:
    """Put a held execution back, to be dispatched again: at its time, or at once when that has passed.

    A deferral begins anew, so that a second deploy gets its grace; so do the counts of crashes and of
    reattempts, since a person has looked at it.
    """
    if execution.deferred_since is not None:
        change(execution, **NO_ERROR)
    change(execution, held=False, deferred_since=None, dispatched_at=None, crashes=0)
    if execution.reattempts:
        change(execution, metadata={**execution.metadata, "reattempts": 0})


def reschedule(execution: StepExecution, *, at: datetime) -> None:
    """Move a scheduled execution in time; what was dispatched for the old time counts no more."""
    change(execution, scheduled_for=clock.local(at), dispatched_at=None)


def defer(
    execution: StepExecution, *, now: datetime, until: datetime, error: ErrorRecord | None = None
) -> None:
    """Put off an execution that this code cannot run."""
    if execution.deferred_since is None:
        change(execution, deferred_since=clock.local(now))
    if error is not None:
        note_error(execution, error)
    reschedule(execution, at=until)


def note_unknown(execution: StepExecution, *, now: datetime) -> None:
    """Begin the grace of an execution that this code cannot judge."""
    change(execution, deferred_since=clock.local(now))
