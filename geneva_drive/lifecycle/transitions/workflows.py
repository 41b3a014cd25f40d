"""A workflow goes from state to state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geneva_drive import clock
from geneva_drive.events import workflow_transitioned
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.lifecycle.transitions.writing import change
from geneva_drive.states import MOVES, WorkflowState

if TYPE_CHECKING:
    from datetime import datetime

    from geneva_drive.events import Pending
    from geneva_drive.models.workflow import Workflow

__all__ = ["move", "request_pause", "touch"]


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
