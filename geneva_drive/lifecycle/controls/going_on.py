"""Going on at a step of the code as it is now, in a workflow that has nothing scheduled."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from geneva_drive import tracing
from geneva_drive.lifecycle import scheduling, transitions
from geneva_drive.lifecycle.locking import alias_of
from geneva_drive.states import WorkflowState

if TYPE_CHECKING:
    from datetime import datetime

    from geneva_drive.definition.collection import StepDefinition
    from geneva_drive.events import Pending
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["go_on_at"]

_NO_WAIT = timedelta(0)


def go_on_at(
    locked: Workflow,
    definition: StepDefinition | None,
    now: datetime,
    pending: Pending,
    *,
    wait: timedelta | None = _NO_WAIT,
    continues: StepExecution | None = None,
) -> StepExecution | None:
    """Schedule a step of a workflow that has no active execution, or finish it."""
    state = WorkflowState.READY if definition is not None else WorkflowState.FINISHED
    name = definition.name if definition is not None else None
    transitions.move(locked, state, now=now, next_step_name=name, pending=pending)
    if definition is None:
        return None
    execution = scheduling.build(
        locked, definition, now=now, wait=wait, trace=_trace(locked), continues=continues
    )
    transitions.flush(execution)
    return execution


def _trace(locked: Workflow) -> dict[str, str] | None:
    """Return the trace context that the latest execution has; nothing is asked where nobody traces."""
    if not tracing.is_on():
        return None
    rows = locked.executions.db_manager(alias_of(locked)).only("metadata", "workflow_id")
    latest = rows.latest_first().first()
    return latest.trace if latest is not None else None
