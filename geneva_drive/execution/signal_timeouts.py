"""A step that waits for a signal, and none came in time.

The deadline belongs to the row. No timer and no job stand behind it: every worker and housekeeping find the due
ones through their index, and decide under the same lock as a signal that arrives.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import InterfaceError, OperationalError

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.collection import StepDefinition
from geneva_drive.definition.decisions import PASSED_OVER, Decision, Then, decide_error
from geneva_drive.definition.matchers import describe
from geneva_drive.definition.registry import registry
from geneva_drive.events import Pending
from geneva_drive.exceptions import SignalWaitTimeout, StepNotDefinedError
from geneva_drive.lifecycle import dispatch, error_text, signals, transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.locking import in_transaction, lock_execution, lock_workflow
from geneva_drive.logs import about
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState, Outcome, WorkflowState

logger = logging.getLogger("geneva_drive.signal")

_PAGE = 200


def is_late(execution: StepExecution, now: datetime) -> bool:
    """Whether its deadline has passed."""
    return execution.wait_deadline is not None and clock.utc(execution.wait_deadline) <= now


def timeout_error(
    workflow: Workflow, execution: StepExecution, definition: StepDefinition
) -> SignalWaitTimeout:
    """Make the error that says what did not come."""
    assert definition.wait_for is not None
    return SignalWaitTimeout(
        f"{workflow}: its step {execution.step_name!r} waited for {describe(definition.wait_for)!r} since "
        f"{execution.waiting_since}, and none came until {execution.wait_deadline}."
    )


def timed_out(workflow: Workflow, execution: StepExecution, definition: StepDefinition) -> Decision | None:
    """Decide by ``on_timeout``; None leaves it to the step's policies, as for any error of the step."""
    if definition.on_timeout is None:
        return None
    error = error_text.record(timeout_error(workflow, execution, definition))
    match definition.on_timeout:
        case "skip":
            return replace(PASSED_OVER, error=error, notes={"reason": "not signaled in time"})
        case "cancel":
            return Decision(ExecutionState.FAILED, Outcome.CANCELED, Then.CANCEL, error=error)
        case "pause":
            return decide_error(error)


def expire_due(using: str, *, most: int = 1000) -> int:
    """Deal with waiting executions whose deadline has passed; return how many were moved.

    Parameters
    ----------
    most
        Rows after which to stop; the rest stays due.
    """
    moved = 0
    for pk, workflow_id in _due(using):
        try:
            moved += _expire(using, pk, workflow_id)
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            # One row stops no others.
            extra = about(workflow_id=workflow_id, execution_id=pk)
            logger.exception(
                "The deadline of execution %s passed, and it could not be dealt with.", pk, extra=extra
            )
        if moved >= most:
            break
    return moved


def _due(using: str) -> Iterator[tuple[Any, Any]]:
    """Yield (execution, workflow) of those that this code has something to do with, the latest due last."""
    now = clock.now(using)
    grace_over = now - settings.UNDEFINED_STEP_GRACE
    rows = StepExecution.objects.using(using).filter(
        state=ExecutionState.WAITING, on_hold=False, wait_deadline__lte=now
    )
    columns = ("workflow_id", "workflow__type", "step_name", "deferred_since")
    for page in rows.pages(*columns, by="wait_deadline", size=_PAGE):
        for _, pk, workflow_id, label, step_name, deferred_since in page:
            cls = registry.get(label)
            known = cls is not None and cls.steps.resolve(step_name) is not None
            # Others may know it: it is looked at once to begin its grace, and once that is over.
            if known or deferred_since is None or clock.utc(deferred_since) <= grace_over:
                yield pk, workflow_id


def _expire(using: str, pk: Any, workflow_id: Any) -> bool:
    def work() -> bool:
        workflow = lock_workflow(Workflow, workflow_id, using)
        execution = lock_execution(workflow, pk) if workflow is not None else None
        if workflow is None or execution is None or workflow.state != WorkflowState.READY:
            return False
        now = clock.now(using)
        if execution.state != ExecutionState.WAITING or not is_late(execution, now):
            return False
        pending = Pending()
        moved = _move(workflow, execution, now, pending)
        transitions.touch(workflow, now=now)
        transitions.flush(workflow)
        pending.send_after_commit(using)
        return moved

    return in_transaction(using, work)


def _move(workflow: Workflow, execution: StepExecution, now: datetime, pending: Pending) -> bool:
    # What is there already counts, however late it is; and a gravestone has no deadline.
    if signals.revisit(workflow, execution, now=now, pending=pending):
        return True
    definition = workflow.steps.resolve(execution.step_name) if type(workflow)._geneva.is_startable else None
    if definition is None:
        decision = _unknown(workflow, execution, now)
        if decision is None:
            return False
    else:
        decision = timed_out(workflow, execution, definition)
    if decision is None:
        # Its gate finds it too late, and lets it fail outside of locks, where a handler may run.
        transitions.wake(execution, now=now)
        transitions.flush(execution)
        dispatch.send(execution)
        return True
    following = apply_decision(workflow, execution, decision, now=now, pending=pending)
    if following is not None:
        transitions.flush(following)
        dispatch.send(following)
    return True


def _unknown(workflow: Workflow, execution: StepExecution, now: datetime) -> Decision | None:
    """Leave what this code does not know to other code, for the grace; then it fails and pauses."""
    if execution.deferred_since is None:
        transitions.note_unknown(execution, now=now)
        transitions.flush(execution)
    if clock.elapsed(execution.deferred_since, execution._state.db) < settings.UNDEFINED_STEP_GRACE:
        return None
    error = StepNotDefinedError(
        f"{workflow}: its step {execution.step_name!r} waited for a signal that did not come in time, and this "
        f"code does not declare what follows. Declare the step, leave a gravestone, or use resume_at() or cancel()."
    )
    return decide_error(error_text.record(error))
