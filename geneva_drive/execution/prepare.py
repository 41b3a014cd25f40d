"""What is looked at before a step's body may run, in this order:

still scheduled → due → workflow ready (all three: ``executor``) → class known → hero present → step
defined → gravestone → ``cancel_if`` → ``skip_if`` → the gate.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

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
from geneva_drive.lifecycle import dispatch, error_text, signals, transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.locking import (
    alias_of,
    in_transaction,
    is_conflict,
    lock_execution,
    lock_workflow,
    may_pass,
)
from geneva_drive.lifecycle.read_only import read_only
from geneva_drive.logs import about
from geneva_drive.models.records import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.serialization import find_unreadable
from geneva_drive.states import ExecutionState, WorkflowState


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
class Defer:
    """This code does not know the step or the class; other code may."""

    until: datetime
    error: ErrorRecord | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """No signal is there that the step waits for: the row waits, and needs no job and no process."""

    timeout: timedelta | None


def check(workflow: Workflow, execution: StepExecution, now: datetime) -> Proceed | Defer | Wait | Decision:
    """Look at everything that does not depend on the row's own state. Both rows are locked."""
    cls = type(workflow)
    # Before the hero: code that does not know the class does not know either whether it needs one.
    if not cls._geneva.is_startable:
        unknown = WorkflowNotDefinedError(
            f"{workflow}: this code declares no workflow class {workflow.type!r}."
        )
        return defer(execution, now, error_text.record(unknown))
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
        return defer(execution, now, error_text.record(StepNotDefinedError(_undefined(workflow, execution))))
    if definition.resumable and (unreadable := find_unreadable(execution.cursor)) is not None:
        # Newer code may have written it, and can read it.
        error = PayloadError(f"{workflow}, cursor of {definition.name!r}: {unreadable.reason}")
        return defer(execution, now, error_text.record(error))
    return Proceed(definition)


def _conditions(
    workflow: Workflow, execution: StepExecution, definition: StepDefinition | None, now: datetime
) -> Proceed | Wait | Decision | None:
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
    if signal_timeouts.is_late(execution, now):
        error = signal_timeouts.timeout_error(workflow, execution, definition)
        return signal_timeouts.timed_out(workflow, execution, definition) or Proceed(definition, error)
    return Wait(definition.timeout)


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


def defer(execution: StepExecution, now: datetime, error: ErrorRecord) -> Defer | Decision:
    """Defer what this code cannot run, for a bounded time; then it fails and the workflow pauses."""
    grace = settings.UNDEFINED_STEP_GRACE
    spent = now - clock.utc(execution.deferred_since) if execution.deferred_since else timedelta(0)
    if spent >= grace:
        return decide_error(error)
    # About twenty looks within the grace, spread so that a crowd of rows does not come back at once.
    pause = min(grace / 20, timedelta(seconds=15)) * random.uniform(0.5, 1.5)
    return Defer(now + min(pause, grace - spent), error)


logger = logging.getLogger("geneva_drive.executor")


def prepare(execution_id: Any, *, using: str, runner: Runner) -> ClaimedExecution | None:
    """Lock, look at the preconditions, mark in progress, commit."""
    row = StepExecution.objects.using(using).filter(pk=execution_id).values_list(*Candidate.COLUMNS).first()
    if row is None:
        logger.info(
            "Execution %s is gone; nothing to do.", execution_id, extra=about(execution_id=execution_id)
        )
        return None
    candidate = Candidate(*row)
    plain = fast_path.begin_at_once(candidate, runner, using)
    if plain is not None:
        return plain
    workflow_id = candidate.workflow_id
    pending = Pending()

    def work() -> ClaimedExecution | None:
        pending.clear()
        workflow = lock_workflow(Workflow, workflow_id, using)
        if workflow is None:
            return None
        execution = lock_execution(workflow, execution_id)
        if execution is None:
            return None
        return prepare_locked(workflow, execution, runner, pending)

    try:
        prepared = in_transaction(using, work)
    except Exception as error:
        if may_pass(error, using):
            raise
        extra = about(
            workflow_type=candidate.type,
            workflow_id=workflow_id,
            execution_id=execution_id,
            step=candidate.step_name,
        )
        logger.exception("Execution %s could not be prepared.", execution_id, extra=extra)
        prepared = None
        defer = partial(defer_unprepared, workflow_id, execution_id, error, using, pending)
        in_transaction(using, defer)
    pending.send()
    return prepared


def prepare_locked(
    workflow: Workflow, execution: StepExecution, runner: Runner, pending: Pending
) -> ClaimedExecution | None:
    """Prepare an execution whose rows are locked; None when there is no body to run."""
    if execution.state != ExecutionState.SCHEDULED or workflow.state != WorkflowState.READY:
        return None
    using = alias_of(workflow)
    now = clock.now(using)
    if clock.utc(execution.scheduled_for) > now:
        # A message that came early changes nothing; the dispatcher gets it back for its time.
        dispatch.send(execution)
        return None
    return advance(workflow, execution, runner, now, pending)


def defer_unprepared(
    workflow_id: Any, execution_id: Any, error: Exception, using: str, pending: Pending
) -> None:
    """Defer a row that cannot be prepared like one whose step is unknown: one row stops no worker."""
    pending.clear()
    workflow = lock_workflow(Workflow, workflow_id, using)
    execution = lock_execution(workflow, execution_id) if workflow is not None else None
    if workflow is None or execution is None or execution.state != ExecutionState.SCHEDULED:
        return
    now = clock.now(using)
    # In ASCII, which every column holds: this is the last line of defence.
    verdict = defer(execution, now, error_text.ascii_only(error_text.record(error)))
    if isinstance(verdict, Decision):
        apply_decision(workflow, execution, verdict, now=now, pending=pending)
        transitions.flush(workflow)
    else:
        transitions.defer(execution, now=now, until=verdict.until, error=verdict.error)
        transitions.flush(execution)
        dispatch.send(execution)


def advance(
    workflow: Workflow,
    execution: StepExecution,
    runner: Runner,
    now: datetime,
    pending: Pending,
    *,
    handed_off: bool = False,
) -> ClaimedExecution | None:
    """From a due execution, written or not yet, to the next one whose body runs here; writes all.

    Steps that are passed over are ended on the way. Returns None when what comes next is not ours, or
    not now, or there is none.
    """
    queue = execution.queue
    while True:
        verdict = check(workflow, execution, now)
        if isinstance(verdict, Proceed):
            token = uuid4()
            if verdict.signal is not None:
                transitions.attach(execution, verdict.signal, now=now)
            transitions.begin(
                workflow,
                execution,
                now=now,
                process=runner.process_id,
                token=token,
                handed_off=handed_off,
                pending=pending,
            )
            transitions.flush(execution)
            transitions.flush(workflow)
            outcome = "proceed" if verdict.error is None else "failed"
            pending.add(precondition_checked, workflow, execution=execution, verdict=outcome)
            return _claimed_execution(workflow, execution, verdict, token)
        if isinstance(verdict, Defer):
            transitions.defer(execution, now=now, until=verdict.until, error=verdict.error)
            transitions.flush(execution)
            transitions.flush(workflow)
            pending.add(precondition_checked, workflow, execution=execution, verdict="deferred")
            dispatch.send(execution)
            return None
        if isinstance(verdict, Wait):
            transitions.wait(workflow, execution, now=now, timeout=verdict.timeout)
            transitions.flush(execution)
            transitions.flush(workflow)
            pending.add(precondition_checked, workflow, execution=execution, verdict="waiting")
            return None
        pending.add(precondition_checked, workflow, execution=execution, verdict=str(verdict.state))
        following = apply_decision(workflow, execution, verdict, now=now, pending=pending)
        if following is None or not may_continue_inline(workflow, following, queue, runner, now):
            leave(workflow, following)
            return None
        execution, handed_off = following, True


def may_continue_inline(
    workflow: Workflow, following: StepExecution, queue: str, runner: Runner, now: datetime
) -> bool:
    return (
        workflow.state == WorkflowState.READY
        and clock.utc(following.scheduled_for) <= now
        and runner.may_continue_inline(following, queue)
    )


def leave(workflow: Workflow, following: StepExecution | None) -> None:
    """Write what comes next as scheduled, for whoever is told of it."""
    if following is not None:
        transitions.flush(following)
        dispatch.send(following)
    transitions.flush(workflow)


def _claimed_execution(
    workflow: Workflow, execution: StepExecution, verdict: Proceed, token: UUID
) -> ClaimedExecution:
    """Give the body an instance of its own: what was set on this one must not reach it."""
    row = row_of(workflow)
    fresh = type(workflow).from_db(workflow._state.db, list(row), list(row.values()))
    cached = workflow._state.fields_cache
    if "hero" in cached:
        # The look-up that the preconditions made; the row was locked a moment ago.
        fresh._state.fields_cache["hero"] = cached["hero"]
    return ClaimedExecution(fresh, execution, verdict.definition, token, error=verdict.error, row=row)
