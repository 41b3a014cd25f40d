"""Giving back what was claimed and not begun: it is scheduled again, and counts as no crash."""

from __future__ import annotations

from datetime import datetime

from geneva_drive import clock
from geneva_drive.definition.decisions import CANCELED_MEANWHILE
from geneva_drive.events import Pending
from geneva_drive.execution.performing import Performance
from geneva_drive.lifecycle import dispatch, transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.locking import alias_of, in_transaction, lock_execution, lock_workflow
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState, WorkflowState

__all__ = ["give_back"]


def give_back(performance: Performance) -> bool:
    """Return an execution that was claimed and not begun; fenced by its token, and no crash counted."""
    using = alias_of(performance.execution)

    def work() -> bool:
        workflow = lock_workflow(Workflow, performance.workflow_pk, using)
        execution = lock_execution(workflow, performance.execution.pk) if workflow is not None else None
        if workflow is None or execution is None or execution.state != ExecutionState.IN_PROGRESS:
            return False
        if execution.attempt_token != performance.token:
            return False
        return _take_back(workflow, execution, clock.now(using))

    return in_transaction(using, work)


def _take_back(workflow: Workflow, execution: StepExecution, now: datetime) -> bool:
    """Put a locked execution whose body was not begun back to scheduled, honouring what was asked for."""
    pending = Pending()
    if workflow.state != WorkflowState.PERFORMING:
        apply_decision(workflow, execution, CANCELED_MEANWHILE, now=now, pending=pending)
    else:
        stop = workflow.pause_requested_at is not None
        transitions.unbegin(workflow, execution, now=now, pending=pending)
        if stop:
            transitions.hold(execution)
            transitions.move(
                workflow, WorkflowState.PAUSED, now=now, next_step_name=execution.step_name, pending=pending
            )
        transitions.flush(execution)
        dispatch.send(execution)
    transitions.flush(workflow)
    pending.send_after_commit(alias_of(workflow))
    return True
