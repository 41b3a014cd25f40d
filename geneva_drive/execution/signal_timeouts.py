"""Deadlines of steps that wait for a signal.

The deadline is a column of the row; no timer and no job exist for it. Every worker and housekeeping find the due
ones through their index, and decide under the same lock as a signal that arrives.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from django.db import InterfaceError, OperationalError

from geneva_drive import clock
from geneva_drive.definition.collection import StepDefinition
from geneva_drive.definition.decisions import PASSED_OVER, Decision, Then, decide_error
from geneva_drive.definition.matchers import describe
from geneva_drive.definition.registry import registry
from geneva_drive.exceptions import SignalWaitTimeout, StepNotDefinedError
from geneva_drive.lifecycle import error_text, signals, transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.unit_of_work import UnitOfWork, with_locked
from geneva_drive.logs import about
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.states import ExecutionState, Outcome, WorkflowState

logger = logging.getLogger("geneva_drive.signal")

_PAGE = 200


def is_late(unit: UnitOfWork) -> bool:
    """Whether the deadline of the unit's execution has passed."""
    deadline = unit.execution.wait_deadline
    return deadline is not None and clock.utc(deadline) <= unit.now


def timeout_error(unit: UnitOfWork, definition: StepDefinition) -> SignalWaitTimeout:
    """Make the error that says which signal did not come."""
    assert definition.wait_for is not None
    execution = unit.execution
    return SignalWaitTimeout(
        f"{unit.workflow}: its step {execution.step_name!r} waited for {describe(definition.wait_for)!r} since "
        f"{execution.waiting_since}, and none came until {execution.wait_deadline}."
    )


def timed_out(unit: UnitOfWork, definition: StepDefinition) -> Decision | None:
    """Decide by ``on_timeout``; None leaves it to the step's policies, as for any error of the step."""
    if definition.on_timeout is None:
        return None
    error = error_text.record(timeout_error(unit, definition))
    match definition.on_timeout:
        case "skip":
            return replace(PASSED_OVER, error=error, notes={"reason": "not signaled in time"})
        case "cancel":
            return Decision(ExecutionState.FAILED, Outcome.CANCELED, Then.CANCEL, error=error)
        case "pause":
            return decide_error(error)


def expire_due(using: str, *, most: int = 1000) -> int:
    """Move waiting executions whose deadline has passed; return how many.

    Parameters
    ----------
    most
        Rows after which to stop; the others stay due.
    """
    moved = 0
    fence: Any = {"execution_state": ExecutionState.WAITING, "workflow_state": WorkflowState.READY}
    for pk, workflow_id in _due(using):
        try:
            moved += bool(with_locked(using, workflow_id, _expire, execution_pk=pk, **fence))
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            # One row must not stop the others.
            extra = about(workflow_id=workflow_id, execution_id=pk)
            logger.exception(
                "The signal timeout of execution %s could not be applied. Maintenance will try again.",
                pk,
                extra=extra,
            )
        if moved >= most:
            break
    return moved


def _due(using: str) -> Iterator[tuple[Any, Any]]:
    """Yield (execution, workflow) of those that this code can move, in the order of their deadlines."""
    now = clock.now(using)
    rows = StepExecution.objects.using(using).filter(
        state=ExecutionState.WAITING, on_hold=False, wait_deadline__lte=now
    )
    columns = ("workflow_id", "workflow__type", "step_name", "deferred_since")
    for page in rows.pages(*columns, by="wait_deadline", size=_PAGE):
        for _, pk, workflow_id, label, step_name, deferred_since in page:
            cls = registry.get(label)
            known = cls is not None and cls.steps.resolve(step_name) is not None
            # Other code may know it: it is looked at once to begin its grace, and again when that is spent.
            if known or deferred_since is None or not transitions.grace_left(deferred_since, now):
                yield pk, workflow_id


def _expire(unit: UnitOfWork) -> bool:
    if not is_late(unit):
        return False
    transitions.touch(unit)
    # What is there already counts, however late it is; and a gravestone has no deadline.
    if signals.revisit(unit):
        return True
    definition = signals.declared_step(unit)
    if definition is not None:
        decision = timed_out(unit, definition)
    elif transitions.begin_grace(unit):
        return False  # Other code may declare the step.
    else:
        error = StepNotDefinedError(
            f"{unit.workflow}: its step {unit.execution.step_name!r} waited for a signal that did not come in time, "
            "and this code does not declare what follows. Declare the step, leave a gravestone, or use resume_at() "
            "or cancel()."
        )
        decision = decide_error(error_text.record(error))
    if decision is None:
        # Its gate finds it too late, and lets it fail outside of locks, where a handler may run.
        transitions.wake(unit)
    else:
        apply_decision(unit, decision)
    return True
