"""What is looked at before a step's body may run, in this order:

still scheduled → due → workflow ready (all three: ``executor``) → class known → hero present → step
defined → gravestone → ``cancel_if`` → ``skip_if`` → the gate.
"""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from django.db import OperationalError, transaction

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
from geneva_drive.exceptions import InvalidStateError, StepNotDefinedError, WorkflowNotDefinedError
from geneva_drive.lifecycle import errors
from geneva_drive.lifecycle.locking import alias_of, is_conflict

if TYPE_CHECKING:
    from datetime import datetime

    from geneva_drive.definition.steps import StepDefinition
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["Proceed", "PutOff", "check", "put_off"]


@dataclass(frozen=True, slots=True)
class Proceed:
    """The execution may be marked in progress.

    With an ``error`` a precondition raised: the mark is set all the same, since only then may a
    handler run, outside locks and fenced like a body.
    """

    definition: StepDefinition | None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class PutOff:
    """This code does not know the step or the class; other code may."""

    until: datetime
    error: ErrorRecord | None = None


class _OnlyReading:
    """Hangs on the instance while conditions look at it: flow words are not theirs to say."""

    def __init__(self, execution: StepExecution) -> None:
        self.execution = execution

    def leave(self, how: str, **_: Any) -> NoReturn:
        raise InvalidStateError(
            f"{how}() was called in a condition or a hook. They only look; decide inside the step."
        )

    def __getattr__(self, name: str) -> Any:
        raise InvalidStateError(f"{name} can be used only inside a step.")


def check(workflow: Workflow, execution: StepExecution, now: datetime) -> Proceed | PutOff | Decision:
    """Look at everything that does not depend on the row's own state. Both rows are locked."""
    cls = type(workflow)
    # Before the hero: code that does not know the class does not know either whether it needs one.
    if not cls._geneva.is_startable:
        unknown = WorkflowNotDefinedError(
            f"{workflow}: this code declares no workflow class {workflow.type!r}."
        )
        return put_off(execution, now, errors.record(unknown))
    definition = workflow.steps.resolve(execution.step_name)
    try:
        with _read_only(workflow, execution, definition):
            found = _conditions(workflow, definition)
    except OperationalError as database_error:
        if is_conflict(database_error):
            raise
        return Proceed(definition, database_error)
    except BaseException as raised:  # noqa: BLE001 - also what ends processes must find its row in progress
        return Proceed(definition, raised)
    if found is not None:
        return found
    if definition is None:
        return put_off(execution, now, errors.record(StepNotDefinedError(_undefined(workflow, execution))))
    return Proceed(definition)


def _conditions(workflow: Workflow, definition: StepDefinition | None) -> Decision | None:
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
    return None


def _hero_is_missing(workflow: Workflow) -> bool:
    return workflow.hero_type_id is None or workflow.hero is None


class _read_only:  # noqa: N801 - used as a context manager
    """A savepoint around code that may raise, and a refusal of flow words on the instance."""

    def __init__(
        self, workflow: Workflow, execution: StepExecution, definition: StepDefinition | None
    ) -> None:
        self._workflow = workflow
        self._execution = execution
        geneva = type(workflow)._geneva
        reads = (
            not geneva.may_proceed_without_hero
            or bool(geneva.cancel_conditions)
            or (definition is not None and definition.skip_if is not None)
        )
        # A condition whose query fails must not take the completed step down with it.
        self._savepoint: Any = transaction.atomic(using=alias_of(workflow)) if reads else nullcontext()

    def __enter__(self) -> None:
        self._workflow._step = _OnlyReading(self._execution)
        self._savepoint.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._workflow._step = None
        self._savepoint.__exit__(*exc)


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
