"""Changing a row in memory, and writing what was changed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import F

from geneva_drive import clock
from geneva_drive.definition.decisions import Decision, ErrorRecord
from geneva_drive.events import Pending, execution_finalized, workflow_transitioned
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.lifecycle.locking import alias_of
from geneva_drive.models.records import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import MOVES, UNCONSUMED, ExecutionState, SignalState, WorkflowState

if TYPE_CHECKING:
    from django.db.models import QuerySet


def change(row: Workflow | StepExecution | Signal, **values: Any) -> None:
    """Set columns in memory, to be written by the next ``flush``."""
    dirty: set[str] = row.__dict__.setdefault("_dirty", set())
    for name, value in values.items():
        setattr(row, name, value)
        dirty.add(name)


def flush(row: Workflow | StepExecution | Signal) -> None:
    """Write what was changed: an INSERT for a new row, an UPDATE of the changed columns otherwise."""
    dirty: set[str] = row.__dict__.pop("_dirty", set())
    if row._state.adding:
        row.save(force_insert=True, using=row._state.db)
    elif dirty:
        type(row)._base_manager.using(alias_of(row)).filter(pk=row.pk).update(
            **{name: getattr(row, name) for name in dirty}
        )


def move(
    workflow: Workflow,
    state: WorkflowState,
    *,
    now: datetime,
    next_step_name: str | None,
    pending: Pending | None = None,
) -> None:
    """Move a workflow to another state, pointing at a step.

    Raises
    ------
    InvalidStateError
        There is no such move.
    """
    before = WorkflowState(workflow.state)
    if state != before and state not in MOVES[before]:
        raise InvalidStateError(f"{workflow} is {before} and cannot become {state}.")
    moment = clock.local(now)
    changes: dict[str, Any] = {
        "state": state,
        "next_step_name": next_step_name,
        "current_step_name": None,
        "updated_at": moment,
    }
    if workflow.pause_requested_at is not None:
        # Leaving "performing" answers the request, whichever way it went.
        changes["pause_requested_at"] = None
    if state in (WorkflowState.PAUSED, WorkflowState.FINISHED, WorkflowState.CANCELED) and state != before:
        changes["transitioned_at"] = moment
    change(workflow, **changes)
    if pending is not None and state != before:
        pending.add(workflow_transitioned, workflow, before=str(before), after=str(state))


def request_pause(workflow: Workflow, *, now: datetime | None) -> None:
    """Ask the step in flight to be the last before a pause; None withdraws the request."""
    change(workflow, pause_requested_at=None if now is None else clock.local(now))


def touch(workflow: Workflow, *, now: datetime) -> None:
    """Note that something about a workflow changed.

    Whatever a gate or a sender decides by must change the workflow's row too: where transactions see a
    snapshot (repeatable read on PostgreSQL), waiting for the row's lock refreshes nothing, and only a row that
    was changed meanwhile makes the later transaction start anew.
    """
    change(workflow, updated_at=clock.local(now))


NO_ERROR: dict[str, Any] = {"error_class": None, "error_message": None, "error_traceback": None}


def begin(
    workflow: Workflow,
    execution: StepExecution,
    *,
    now: datetime,
    process: UUID | None,
    token: UUID,
    handed_off: bool = False,
    pending: Pending,
) -> None:
    """Mark a scheduled execution as in progress, and its workflow as performing it."""
    moment = clock.local(now)
    change(
        execution,
        state=ExecutionState.IN_PROGRESS,
        started_at=moment,
        process_id=process,
        attempt_token=token,
        handed_off=handed_off,
    )
    if execution.deferred_since is not None:
        # What kept it from running is over.
        change(execution, **NO_ERROR)
    before = str(workflow.state)
    changes: dict[str, Any] = {
        "state": WorkflowState.PERFORMING,
        "current_step_name": execution.step_name,
        "updated_at": moment,
    }
    if workflow.started_at is None:
        changes["started_at"] = moment
    if workflow.next_step_name != execution.step_name:
        changes["next_step_name"] = execution.step_name
    change(workflow, **changes)
    pending.add(workflow_transitioned, workflow, before=before, after=str(WorkflowState.PERFORMING))


def release(workflow: Workflow, execution: StepExecution, *, now: datetime, pending: Pending) -> None:
    """Give back an execution that was claimed and whose body was not begun."""
    change(
        execution,
        state=ExecutionState.SCHEDULED,
        started_at=None,
        process_id=None,
        attempt_token=None,
        handed_off=False,
        dispatched_at=None,
    )
    before = str(workflow.state)
    change(workflow, state=WorkflowState.READY, current_step_name=None, updated_at=clock.local(now))
    pending.add(workflow_transitioned, workflow, before=before, after=str(WorkflowState.READY))


def end(execution: StepExecution, decision: Decision, *, now: datetime) -> None:
    """End an execution as decided. Every path that ends one comes through here."""
    moment = clock.local(now)
    changes: dict[str, Any] = {
        "state": decision.state,
        "outcome": decision.outcome,
        "finished_at": moment,
        "on_hold": False,
    }
    if decision.error is not None:
        changes |= _error_columns(decision.error)
    if decision.notes:
        known = execution.metadata if isinstance(execution.metadata, dict) else {}
        changes["metadata"] = {**known, **decision.notes}
    change(execution, **changes)


def _error_columns(error: ErrorRecord) -> dict[str, Any]:
    return {
        "error_class": error.class_name,
        "error_message": error.message,
        "error_traceback": error.traceback,
    }


def note_error(execution: StepExecution, error: ErrorRecord) -> None:
    """Record an error on a row that does not end by it (a deferral)."""
    change(execution, **_error_columns(error))


def finalized(
    workflow: Workflow, execution: StepExecution, pending: Pending, *, fenced: bool = False
) -> None:
    """Tell the receivers that an execution ended, or that its end came too late."""
    pending.add(execution_finalized, workflow, execution=execution, fenced=fenced)


def put_on_hold(execution: StepExecution) -> None:
    """Take a scheduled or waiting execution of a paused workflow out of the scans' sight.

    On one in progress it is the mark that a pause or cancel waits for it: its next checkpoint stops there.
    """
    change(execution, on_hold=True)


def clear_hold(execution: StepExecution) -> None:
    """Take back the mark on an execution in progress."""
    change(execution, on_hold=False)


def take_off_hold(execution: StepExecution) -> None:
    """Take an execution off hold, to be dispatched again: at its time, or at once when that has passed.

    A deferral begins anew, so that a second deploy gets its grace; so do the counts of crashes and of
    reattempts, since a person has looked at it.
    """
    if execution.deferred_since is not None:
        change(execution, **NO_ERROR)
    change(execution, on_hold=False, deferred_since=None, dispatched_at=None, crashes=0)
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


def wait(workflow: Workflow, execution: StepExecution, *, now: datetime, timeout: timedelta | None) -> None:
    """Let an execution wait for a signal: no job, no process.

    One that was waiting before, and woken in vain, has waited all the time: its deadline stays.
    """
    changes: dict[str, Any] = {"state": ExecutionState.WAITING, "deferred_since": None, "dispatched_at": None}
    if execution.waiting_since is None:
        changes["waiting_since"] = clock.local(now)
        changes["wait_deadline"] = None if timeout is None else clock.local(now + timeout)
    change(execution, **changes)
    touch(workflow, now=now)


def wake(execution: StepExecution, *, now: datetime) -> None:
    """Schedule a waiting execution for now; its gate decides again, unless it has its signal already."""
    change(
        execution,
        state=ExecutionState.SCHEDULED,
        scheduled_for=clock.local(now),
        dispatched_at=None,
        deferred_since=None,
        on_hold=False,
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
