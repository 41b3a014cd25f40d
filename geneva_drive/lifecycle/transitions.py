"""The moves that rows can make: each changes columns in memory; the unit of work writes them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import F

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.decisions import Decision, ErrorRecord
from geneva_drive.events import execution_finalized, workflow_transitioned
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.lifecycle.unit_of_work import UnitOfWork, change, flush
from geneva_drive.models.records import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.states import MOVES, UNCONSUMED, ExecutionState, SignalState, WorkflowState

_NO_ERROR: dict[str, Any] = {"error_class": None, "error_message": None, "error_traceback": None}

# -- the workflow


def move(unit: UnitOfWork, state: WorkflowState, next_step_name: str | None) -> None:
    """Move the workflow to another state, pointing at a step.

    Raises
    ------
    InvalidStateError
        There is no such move.
    """
    workflow = unit.workflow
    before = WorkflowState(workflow.state)
    if state != before and state not in MOVES[before]:
        raise InvalidStateError(f"{workflow} is {before} and cannot become {state}.")
    change(
        workflow, state=state, next_step_name=next_step_name, current_step_name=None, updated_at=unit.moment
    )
    if workflow.pause_requested_at is not None:
        # Leaving "performing" answers the request, whichever way it went.
        change(workflow, pause_requested_at=None)
    if state != before:
        if state in (WorkflowState.PAUSED, WorkflowState.FINISHED, WorkflowState.CANCELED):
            change(workflow, transitioned_at=unit.moment)
        unit.pending.add(workflow_transitioned, workflow, before=str(before), after=str(state))


def request_pause(unit: UnitOfWork, *, requested: bool) -> None:
    """Ask the step in flight to be the last before a pause, or withdraw that."""
    change(unit.workflow, pause_requested_at=unit.moment if requested else None)


def touch(unit: UnitOfWork) -> None:
    """Note that something about the workflow changed.

    Whatever a gate or a sender decides by must change the workflow's row too: where transactions see a
    snapshot (repeatable read on PostgreSQL), waiting for the row's lock refreshes nothing, and only a row that
    was changed meanwhile makes the later transaction start again.
    """
    change(unit.workflow, updated_at=unit.moment)


# -- an execution and its workflow


def begin(unit: UnitOfWork, *, process: UUID | None, token: UUID, handed_off: bool = False) -> None:
    """Mark a scheduled execution as in progress, and its workflow as performing it."""
    workflow, execution = unit.workflow, unit.execution
    if execution.deferred_since is not None:
        # What kept it from running is over.
        change(execution, **_NO_ERROR)
    change(
        execution,
        state=ExecutionState.IN_PROGRESS,
        started_at=unit.moment,
        process_id=process,
        attempt_token=token,
        handed_off=handed_off,
    )
    before, after, name = str(workflow.state), WorkflowState.PERFORMING, execution.step_name
    change(workflow, state=after, current_step_name=name, updated_at=unit.moment)
    if workflow.started_at is None:
        change(workflow, started_at=unit.moment)
    if workflow.next_step_name != name:
        change(workflow, next_step_name=name)
    unit.pending.add(workflow_transitioned, workflow, before=before, after=str(after))


def release(unit: UnitOfWork) -> None:
    """Make an execution scheduled again that was claimed and whose body was not begun; its workflow is ready."""
    change(
        unit.execution,
        state=ExecutionState.SCHEDULED,
        started_at=None,
        process_id=None,
        attempt_token=None,
        handed_off=False,
        dispatched_at=None,
    )
    unit.following = unit.execution
    move(unit, WorkflowState.READY, unit.workflow.next_step_name)


def end(unit: UnitOfWork, decision: Decision) -> None:
    """End an execution as decided."""
    execution = unit.execution
    change(execution, state=decision.state, outcome=decision.outcome, finished_at=unit.moment, on_hold=False)
    if decision.error is not None:
        note_error(execution, decision.error)
    if decision.notes:
        known = execution.metadata if isinstance(execution.metadata, dict) else {}
        change(execution, metadata={**known, **decision.notes})
    unit.pending.add(execution_finalized, unit.workflow, execution=execution, fenced=False)


def wait(unit: UnitOfWork, timeout: timedelta | None) -> None:
    """Let an execution wait for a signal: no job, no process.

    One that was woken in vain has been waiting all the time: its deadline stays.
    """
    execution = unit.execution
    change(execution, state=ExecutionState.WAITING, deferred_since=None, dispatched_at=None)
    if execution.waiting_since is None:
        deadline = None if timeout is None else clock.local(unit.now + timeout)
        change(execution, waiting_since=unit.moment, wait_deadline=deadline)
    touch(unit)


def wake(unit: UnitOfWork) -> None:
    """Schedule a waiting execution for now; its gate decides again, unless it has its signal already."""
    change(
        unit.execution,
        state=ExecutionState.SCHEDULED,
        scheduled_for=unit.moment,
        dispatched_at=None,
        deferred_since=None,
        on_hold=False,
    )
    unit.following = unit.execution


def defer(unit: UnitOfWork, *, until: datetime, error: ErrorRecord) -> None:
    """Put off an execution that this code cannot run."""
    begin_grace(unit)
    note_error(unit.execution, error)
    reschedule(unit, at=until)


def begin_grace(unit: UnitOfWork) -> timedelta:
    """Begin the grace of an execution that this code cannot run, unless it has begun; return what is left."""
    if unit.execution.deferred_since is None:
        change(unit.execution, deferred_since=unit.moment)
    return grace_left(unit.execution.deferred_since, unit.now)


def grace_left(deferred_since: datetime | None, now: datetime) -> timedelta:
    """Return how long an execution is still left to other code; zero when its grace is spent."""
    spent = timedelta(0) if deferred_since is None else now - clock.utc(deferred_since)
    return max(settings.UNDEFINED_STEP_GRACE - spent, timedelta(0))


# -- an execution alone


def note_error(execution: StepExecution, error: ErrorRecord) -> None:
    change(
        execution, error_class=error.class_name, error_message=error.message, error_traceback=error.traceback
    )


def reschedule(unit: UnitOfWork, *, at: datetime) -> None:
    """Move a scheduled execution to another time; a job for the old time does not count any more."""
    change(unit.execution, scheduled_for=clock.local(at), dispatched_at=None)
    unit.following = unit.execution


def hold(execution: StepExecution, *, on_hold: bool = True) -> None:
    """Take a scheduled or waiting execution of a paused workflow out of the scans.

    On one in progress it marks that a pause or cancel waits for it. A resumable step finds the mark in the
    statement that writes its cursor, without another query, and stops there.
    """
    change(execution, on_hold=on_hold)


def take_off_hold(execution: StepExecution) -> None:
    """Take an execution off hold, to be dispatched again: at its time, or at once when that has passed.

    Its grace begins again, so that a second deploy gets one; so do the counts of crashes and of
    reattempts, since a person has looked at it.
    """
    if execution.deferred_since is not None:
        change(execution, **_NO_ERROR)
    change(execution, on_hold=False, deferred_since=None, dispatched_at=None, crashes=0)
    if execution.reattempts:
        change(execution, metadata={**execution.metadata, "reattempts": 0})


# -- signals


def attach(unit: UnitOfWork, signal: Signal) -> None:
    """Give a signal to an execution. The signal is written at once."""
    change(unit.execution, signal_id=signal.pk)
    unit.execution.signal = signal
    change(signal, state=SignalState.CLAIMED, claimed_at=unit.moment, claimed_count=signal.claimed_count + 1)
    flush(signal)


def consume(unit: UnitOfWork, **which: Any) -> None:
    """Consume those of the workflow's unconsumed signals that the look-up names."""
    # They need no lock of their own: every change to a signal is made under its workflow's lock.
    signals = unit.workflow.signals.db_manager(unit.using).filter(state__in=UNCONSUMED, **which)
    signals.update(
        state=SignalState.CONSUMED, consumed_at=unit.moment, consumed_count=F("consumed_count") + 1
    )
