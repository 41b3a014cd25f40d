"""An execution begins, is given back, ends, and what errors are written down on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geneva_drive import clock
from geneva_drive.events import execution_finalized, workflow_transitioned
from geneva_drive.lifecycle.transitions.writing import change
from geneva_drive.states import ExecutionState, WorkflowState

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from geneva_drive.definition.decisions import Decision, ErrorRecord
    from geneva_drive.events import Pending
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["NO_ERROR", "begin", "end", "finalized", "note_error", "unbegin"]

NO_ERROR: dict[str, Any] = {"error_class": None, "error_message": None, "error_traceback": None}


def begin(
    workflow: Workflow,
    execution: StepExecution,
    *,
    now: datetime,
    process: UUID | None,
    token: UUID,
    handed_over: bool = False,
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
        handed_over=handed_over,
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


def unbegin(workflow: Workflow, execution: StepExecution, *, now: datetime, pending: Pending) -> None:
    """Give back an execution that was claimed and whose body was not begun."""
    change(
        execution,
        state=ExecutionState.SCHEDULED,
        started_at=None,
        process_id=None,
        attempt_token=None,
        handed_over=False,
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
        "held": False,
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
