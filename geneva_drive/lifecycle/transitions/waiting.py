"""An execution waits for a signal, is woken, is given one; signals are consumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import F

from geneva_drive import clock
from geneva_drive.lifecycle.transitions.workflows import touch
from geneva_drive.lifecycle.transitions.writing import change, flush
from geneva_drive.states import UNCONSUMED, ExecutionState, SignalState

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from django.db.models import QuerySet

    from geneva_drive.models.records import Signal
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["attach", "consume", "park", "wake"]


def park(workflow: Workflow, execution: StepExecution, *, now: datetime, timeout: timedelta | None) -> None:
    """Let an execution wait for a signal: no job, no process.

    One that was parked before, and woken in vain, has waited all the time: its deadline stays.
    """
    changes: dict[str, Any] = {"state": ExecutionState.WAITING, "deferred_since": None, "dispatched_at": None}
    if execution.waiting_since is None:
        changes["waiting_since"] = clock.local(now)
        changes["wait_deadline"] = None if timeout is None else clock.local(now + timeout)
    change(execution, **changes)
    touch(workflow, now=now)


def wake(execution: StepExecution, *, now: datetime) -> None:
    """Schedule a parked execution for now; its gate decides again, unless it has its signal already."""
    change(
        execution,
        state=ExecutionState.SCHEDULED,
        scheduled_for=clock.local(now),
        dispatched_at=None,
        deferred_since=None,
        held=False,
    )


def attach(execution: StepExecution, signal: Signal, *, now: datetime) -> None:
    """Give a signal to an execution. The signal is written at once, the execution by its own ``flush``."""
    change(execution, signal_id=signal.pk)
    execution.signal = signal
    change(
        signal, state=SignalState.CLAIMED, claimed_at=clock.local(now), claimed_count=signal.claimed_count + 1
    )
    flush(signal)


def consume(signals: QuerySet[Signal], *, now: datetime) -> int:
    """Settle signals whose steps are done with them, whatever their counters say; return how many."""
    # No lock of their own: whoever touches a signal holds its workflow's.
    return signals.filter(state__in=UNCONSUMED).update(
        state=SignalState.CONSUMED,
        consumed_at=clock.local(now),
        consumed_count=F("consumed_count") + 1,
    )
