"""What is looked at before a step's body may run, in this order:

still scheduled → due → workflow ready (all three: ``executor``) → class known → hero present → step
defined → gravestone → ``cancel_if`` → ``skip_if`` → the gate.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from django.db import OperationalError

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.decisions import (
    CANCEL_CONDITION,
    HERO_MISSING,
    PASSED_OVER,
    Decision,
    ErrorRecord,
    decide_error,
)
from geneva_drive.exceptions import PayloadError, StepNotDefinedError, WorkflowNotDefinedError
from geneva_drive.execution import timeouts
from geneva_drive.lifecycle import error_text, signals
from geneva_drive.lifecycle.locking import is_conflict
from geneva_drive.lifecycle.read_only import read_only
from geneva_drive.serialization import find_unreadable

if TYPE_CHECKING:
    from datetime import datetime

    from geneva_drive.definition.collection import StepDefinition
    from geneva_drive.models.records import Signal
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["Park", "Proceed", "PutOff", "check", "put_off"]


@dataclass(frozen=True, slots=True)
class Proceed:
    """The execution may be marked in progress.

    With an ``error`` a precondition raised: the mark is set all the same, since only then may a
    handler run, outside locks and fenced like a body. ``signal`` is what the gate found for it.
    """

    definition: StepDefinition | None
    error: BaseException | None = None
    signal: Signal | None = None


@dataclass(frozen=True, slots=True)
class PutOff:
    """This code does not know the step or the class; other code may."""

    until: datetime
    error: ErrorRecord | None = None


@dataclass(frozen=True, slots=True)
class Park:
    """No signal is there that the step waits for: the row waits, and needs no job and no process."""

    timeout: timedelta | None


def check(workflow: Workflow, execution: StepExecution, now: datetime) -> Proceed | PutOff | Park | Decision:
    """Look at everything that does not depend on the row's own state. Both rows are locked."""
    cls = type(workflow)
    # Before the hero: code that does not know the class does not know either whether it needs one.
    if not cls._geneva.is_startable:
        unknown = WorkflowNotDefinedError(
            f"{workflow}: this code declares no workflow class {workflow.type!r}."
        )
        return put_off(execution, now, error_text.record(unknown))
    definition = workflow.steps.resolve(execution.step_name)
    try:
        with read_only(workflow, execution, savepoint=_asks(workflow, definition)):
            found = _conditions(workflow, execution, definition, now)
    except OperationalError as database_error:
        if is_conflict(database_error):
            raise
        return Proceed(definition, database_error)
    except BaseException as raised:  # noqa: BLE001 - also what ends processes must find its row in progress
        return Proceed(definition, raised)
    if found is not None:
        return found
    if definition is None:
        return put_off(
            execution, now, error_text.record(StepNotDefinedError(_undefined(workflow, execution)))
        )
    if definition.resumable and (unreadable := find_unreadable(execution.cursor)) is not None:
        # Newer code may have written it, and can read it.
        error = PayloadError(f"{workflow}, cursor of {definition.name!r}: {unreadable.reason}")
        return put_off(execution, now, error_text.record(error))
    return Proceed(definition)


def _conditions(
    workflow: Workflow, execution: StepExecution, definition: StepDefinition | None, now: datetime
) -> Proceed | Park | Decision | None:
    cls = type(workflow)
    if not cls._geneva.may_proceed_without_hero and _hero_is_missing(workflow):
        return HERO_MISSING
    if definition is None:
        return None
    if definition.removed:
        return PASSED_OVER
    for condition in cls._geneva.cancel_conditions:
        if condition.evaluate(workflow):
            return CANCEL_CONDITION
    if definition.skip_if is not None and definition.skip_if.evaluate(workflow):
        return PASSED_OVER
    if definition.wait_for is None or execution.signal_id is not None:
        return None
    signal = signals.find(workflow, definition.wait_for)
    if signal is not None:
        return Proceed(definition, signal=signal)
    if timeouts.is_late(execution, now):
        error = timeouts.timeout_error(workflow, execution, definition)
        return timeouts.timed_out(workflow, execution, definition) or Proceed(definition, error)
    return Park(definition.timeout)


def _asks(workflow: Workflow, definition: StepDefinition | None) -> bool:
    """Whether anything is asked that may raise, or query and fail."""
    geneva = type(workflow)._geneva
    return (
        not geneva.may_proceed_without_hero
        or bool(geneva.cancel_conditions)
        or (definition is not None and definition.conditional)
    )


def _hero_is_missing(workflow: Workflow) -> bool:
    return workflow.hero_type_id is None or workflow.hero is None


def _undefined(workflow: Workflow, execution: StepExecution) -> str:
    names = ", ".join(step.name for step in workflow.steps.runnable) or "none"
    return (
        f"{workflow}: its step {execution.step_name!r} is not defined in {workflow.type}. Steps that it "
        f"can be resumed at: {names}. Use resume_at() or cancel(), or leave a gravestone: "
        f"{execution.step_name} = removed_step()."
    )


def put_off(execution: StepExecution, now: datetime, error: ErrorRecord) -> PutOff | Decision:
    """Defer what this code cannot run, for a bounded time; then it fails and the workflow pauses."""
    grace = settings.UNDEFINED_STEP_GRACE
    spent = now - clock.utc(execution.deferred_since) if execution.deferred_since else timedelta(0)
    if spent >= grace:
        return decide_error(error)
    # About twenty looks within the grace, spread so that a crowd of rows does not come back at once.
    pause = min(grace / 20, timedelta(seconds=15)) * random.uniform(0.5, 1.5)
    return PutOff(now + min(pause, grace - spent), error)
