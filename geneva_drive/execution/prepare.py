"""Prepare a scheduled execution: check what must hold before its body may run, and mark it in progress.

The order: still scheduled → workflow ready → due → class declared → hero present → step declared → gravestone →
``cancel_if`` → ``skip_if`` → the signal that the step waits for.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from django.db import OperationalError

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.collection import StepDefinition
from geneva_drive.definition.decisions import (
    CANCEL_CONDITION,
    HERO_MISSING,
    PASSED_OVER,
    Decision,
    ErrorRecord,
    decide_error,
)
from geneva_drive.events import Pending, precondition_checked
from geneva_drive.exceptions import PayloadError, StepNotDefinedError, WorkflowNotDefinedError
from geneva_drive.execution import fast_path, signal_timeouts
from geneva_drive.execution.fast_path import Candidate
from geneva_drive.execution.perform import ClaimedExecution, row_of
from geneva_drive.execution.runner import Runner
from geneva_drive.lifecycle import error_text, signals, transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.locking import is_conflict, may_pass
from geneva_drive.lifecycle.unit_of_work import UnitOfWork, read_only, with_locked
from geneva_drive.logs import about
from geneva_drive.models.records import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.serialization import find_unreadable
from geneva_drive.states import ExecutionState, WorkflowState

logger = logging.getLogger("geneva_drive.executor")


def prepare(execution_id: Any, *, using: str, runner: Runner) -> ClaimedExecution | None:
    """Prepare an execution and return it in progress, or None when there is no body to run."""
    row = StepExecution.objects.using(using).filter(pk=execution_id).values_list(*Candidate.COLUMNS).first()
    if row is None:
        logger.info(
            "Execution %s no longer exists. Ignoring the message.",
            execution_id,
            extra=about(execution_id=execution_id),
        )
        return None
    return claim(Candidate(*row), runner, using)


def claim(
    candidate: Candidate, runner: Runner, using: str, *, skip_locked: bool = False
) -> ClaimedExecution | None:
    """Prepare an execution that a scan found, in a transaction of its own.

    Parameters
    ----------
    skip_locked
        Whether to return None, rather than wait, when somebody else has locked its workflow.
    """
    claimed = fast_path.begin(candidate, runner, using, skip_locked=skip_locked)
    if claimed is not None:
        return claimed
    # It is not plain, or somebody else was faster: the portable path looks again.
    pending = Pending()
    lock = partial(
        with_locked,
        using,
        candidate.workflow_id,
        execution_pk=candidate.execution_id,
        execution_state=ExecutionState.SCHEDULED,
        workflow_state=WorkflowState.READY,
        pending=pending,
    )
    try:
        claimed = lock(lambda unit: advance(unit, runner), skip_locked=skip_locked)
    except Exception as error:
        if may_pass(error, using):
            raise
        extra = about(
            workflow_type=candidate.type,
            workflow_id=candidate.workflow_id,
            execution_id=candidate.execution_id,
            step=candidate.step_name,
        )
        logger.exception("Execution %s could not be prepared.", candidate.execution_id, extra=extra)
        # One row must not stop a worker. In ASCII, which every column holds: this is the last line of defence.
        record = error_text.ascii_only(error_text.record(error))
        lock(lambda unit: _defer(unit, record))
    pending.send()
    return claimed


def advance(unit: UnitOfWork, runner: Runner, *, handed_off: bool = False) -> ClaimedExecution | None:
    """Go from a scheduled execution, written or not yet, to the next one whose body runs here.

    Steps that are passed over end on the way. None when what comes next does not run here or now, or when
    there is nothing.
    """
    if clock.utc(unit.execution.scheduled_for) > unit.now:
        # A message that came early changes nothing; the dispatcher gets it again for its time.
        unit.following = unit.execution
        return None
    queue = unit.execution.queue
    while True:
        verdict = check(unit)
        execution = unit.execution
        if isinstance(verdict, Proceed):
            if verdict.signal is not None:
                transitions.attach(unit, verdict.signal)
            token = uuid4()
            transitions.begin(unit, process=runner.process_id, token=token, handed_off=handed_off)
            _note_verdict(unit, "proceed" if verdict.error is None else "failed")
            # The body gets another instance: what was set on this one must not reach it.
            workflow = unit.workflow
            row = row_of(workflow)
            fresh = type(workflow).from_db(unit.using, list(row), list(row.values()))
            if "hero" in workflow._state.fields_cache:
                # The look-up that the preconditions made; the row was locked a moment ago.
                fresh._state.fields_cache["hero"] = workflow._state.fields_cache["hero"]
            return ClaimedExecution(fresh, execution, verdict.definition, token, error=verdict.error, row=row)
        if isinstance(verdict, ErrorRecord):
            _note_verdict(unit, _defer(unit, verdict))
            return None
        if isinstance(verdict, Wait):
            transitions.wait(unit, verdict.timeout)
            _note_verdict(unit, "waiting")
            return None
        _note_verdict(unit, str(verdict.state))
        apply_decision(unit, verdict)
        if not continue_inline(unit, queue, runner):
            return None
        handed_off = True


def _note_verdict(unit: UnitOfWork, verdict: str) -> None:
    unit.pending.add(precondition_checked, unit.workflow, execution=unit.execution, verdict=verdict)


def continue_inline(unit: UnitOfWork, queue: str, runner: Runner) -> bool:
    """Make what follows the unit's execution if it may run here and now; otherwise it is left scheduled."""
    following = unit.following
    if (
        following is None
        or unit.workflow.state != WorkflowState.READY
        or clock.utc(following.scheduled_for) > unit.now
        or not runner.may_continue_inline(following, queue)
    ):
        return False
    unit.execution, unit.following = following, None
    return True


def _defer(unit: UnitOfWork, error: ErrorRecord) -> str:
    """Put off an execution that this code cannot run, until its grace is spent; return the verdict.

    Other code may be able to. After the grace a person has to look.
    """
    left = transitions.grace_left(unit.execution.deferred_since, unit.now)
    if not left:
        decision = decide_error(error)
        apply_decision(unit, decision)
        return str(decision.state)
    # About twenty looks within the grace, spread so that many rows do not come back at once.
    pause = min(settings.UNDEFINED_STEP_GRACE / 20, timedelta(seconds=15)) * random.uniform(0.5, 1.5)
    transitions.defer(unit, until=unit.now + min(pause, left), error=error)
    return "deferred"


# -- the preconditions


@dataclass(frozen=True, slots=True)
class Proceed:
    """The execution may be marked in progress.

    With an ``error`` a precondition raised. It is marked all the same, since only then may a handler run,
    outside locks and fenced like a body. ``signal`` is the one that the step waits for.
    """

    definition: StepDefinition | None
    error: BaseException | None = None
    signal: Signal | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """No signal has come yet: the row waits, and needs no job and no process."""

    timeout: timedelta | None


def check(unit: UnitOfWork) -> Proceed | Wait | Decision | ErrorRecord:
    """Check everything that does not depend on the row's own state; an error says why this code cannot run it."""
    workflow, execution = unit.workflow, unit.execution
    geneva = type(workflow)._geneva
    # Before the hero: code that does not declare the class does not know whether it needs one.
    if not geneva.is_startable:
        return error_text.record(
            WorkflowNotDefinedError(f"{workflow}: this code declares no workflow class {workflow.type!r}.")
        )
    definition = workflow.steps.resolve(execution.step_name)
    # A savepoint where something may query the database and fail.
    queries = (
        not geneva.may_proceed_without_hero
        or bool(geneva.cancel_conditions)
        or (definition is not None and definition.conditional)
    )
    try:
        with read_only(unit, savepoint=queries):
            found = _check_conditions(unit, definition)
    except OperationalError as database_error:
        if is_conflict(database_error):
            raise
        return Proceed(definition, database_error)
    except BaseException as raised:  # noqa: BLE001 - also what ends processes must find its row in progress
        return Proceed(definition, raised)
    if found is not None:
        return found
    if definition is None:
        names = ", ".join(step.name for step in workflow.steps.runnable) or "none"
        name = execution.step_name
        undefined = StepNotDefinedError(
            f"{workflow}: its step {name!r} is not defined in {workflow.type}. Steps that it can be resumed at: "
            f"{names}. Use resume_at() or cancel(), or leave a gravestone: {name} = removed_step()."
        )
        return error_text.record(undefined)
    if definition.resumable and (unreadable := find_unreadable(execution.cursor)) is not None:
        # Newer code may have written it, and can read it.
        error = PayloadError(f"{workflow}, cursor of {definition.name!r}: {unreadable.reason}")
        return error_text.record(error)
    return Proceed(definition)


def _check_conditions(
    unit: UnitOfWork, definition: StepDefinition | None
) -> Proceed | Wait | Decision | None:
    workflow, execution = unit.workflow, unit.execution
    geneva = type(workflow)._geneva
    if not geneva.may_proceed_without_hero and (workflow.hero_type_id is None or workflow.hero is None):
        return HERO_MISSING
    if definition is None:
        return None
    if definition.removed:
        return PASSED_OVER
    if any(condition.evaluate(workflow) for condition in geneva.cancel_conditions):
        return CANCEL_CONDITION
    if definition.skip_if is not None and definition.skip_if.evaluate(workflow):
        return PASSED_OVER
    if definition.wait_for is None or execution.signal_id is not None:
        return None
    signal = signals.find(workflow, definition.wait_for)
    if signal is not None:
        return Proceed(definition, signal=signal)
    if signal_timeouts.is_late(unit):
        return signal_timeouts.timed_out(unit, definition) or Proceed(
            definition, signal_timeouts.timeout_error(unit, definition)
        )
    return Wait(definition.timeout)
