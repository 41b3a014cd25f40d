"""The first phase: lock, look at the preconditions, mark in progress, commit."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from geneva_drive import clock
from geneva_drive.definition.decisions import Decision
from geneva_drive.events import Pending, precondition_checked
from geneva_drive.execution import handover, preconditions
from geneva_drive.execution.handover import Candidate
from geneva_drive.execution.performing import Performance, row_of
from geneva_drive.execution.runner import Runner
from geneva_drive.lifecycle import dispatch, error_text, transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.locking import alias_of, in_transaction, lock_execution, lock_workflow, may_pass
from geneva_drive.logs import about
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState, WorkflowState

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["advance", "leave", "may_go_on", "prepare", "prepare_locked", "put_off_unprepared"]

logger = logging.getLogger("geneva_drive.executor")


def prepare(execution_id: Any, *, using: str, runner: Runner) -> Performance | None:
    """Lock, look at the preconditions, mark in progress, commit."""
    row = StepExecution.objects.using(using).filter(pk=execution_id).values_list(*Candidate.COLUMNS).first()
    if row is None:
        logger.info(
            "Execution %s is gone; nothing to do.", execution_id, extra=about(execution_id=execution_id)
        )
        return None
    candidate = Candidate(*row)
    plain = handover.begin_at_once(candidate, runner, using)
    if plain is not None:
        return plain
    workflow_id = candidate.workflow_id
    pending = Pending()

    def work() -> Performance | None:
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
        put_off = partial(put_off_unprepared, workflow_id, execution_id, error, using, pending)
        in_transaction(using, put_off)
    pending.send()
    return prepared


def prepare_locked(
    workflow: Workflow, execution: StepExecution, runner: Runner, pending: Pending
) -> Performance | None:
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


def put_off_unprepared(
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
    verdict = preconditions.put_off(execution, now, error_text.ascii_only(error_text.record(error)))
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
    handed_over: bool = False,
) -> Performance | None:
    """From a due execution, written or not yet, to the next one whose body runs here; writes all.

    Steps that are passed over are ended on the way. Returns None when what comes next is not ours, or
    not now, or there is none.
    """
    queue = execution.queue
    while True:
        verdict = preconditions.check(workflow, execution, now)
        if isinstance(verdict, preconditions.Proceed):
            token = uuid4()
            if verdict.signal is not None:
                transitions.attach(execution, verdict.signal, now=now)
            transitions.begin(
                workflow,
                execution,
                now=now,
                process=runner.process_id,
                token=token,
                handed_over=handed_over,
                pending=pending,
            )
            transitions.flush(execution)
            transitions.flush(workflow)
            outcome = "proceed" if verdict.error is None else "failed"
            pending.add(precondition_checked, workflow, execution=execution, verdict=outcome)
            return _performance(workflow, execution, verdict, token)
        if isinstance(verdict, preconditions.PutOff):
            transitions.defer(execution, now=now, until=verdict.until, error=verdict.error)
            transitions.flush(execution)
            transitions.flush(workflow)
            pending.add(precondition_checked, workflow, execution=execution, verdict="deferred")
            dispatch.send(execution)
            return None
        if isinstance(verdict, preconditions.Park):
            transitions.park(workflow, execution, now=now, timeout=verdict.timeout)
            transitions.flush(execution)
            transitions.flush(workflow)
            pending.add(precondition_checked, workflow, execution=execution, verdict="waiting")
            return None
        pending.add(precondition_checked, workflow, execution=execution, verdict=str(verdict.state))
        following = apply_decision(workflow, execution, verdict, now=now, pending=pending)
        if following is None or not may_go_on(workflow, following, queue, runner, now):
            leave(workflow, following)
            return None
        execution, handed_over = following, True


def may_go_on(
    workflow: Workflow, following: StepExecution, queue: str, runner: Runner, now: datetime
) -> bool:
    return (
        workflow.state == WorkflowState.READY
        and clock.utc(following.scheduled_for) <= now
        and runner.may_go_on(following, queue)
    )


def leave(workflow: Workflow, following: StepExecution | None) -> None:
    """Write what comes next as scheduled, for whoever is told of it."""
    if following is not None:
        transitions.flush(following)
        dispatch.send(following)
    transitions.flush(workflow)


def _performance(
    workflow: Workflow, execution: StepExecution, verdict: preconditions.Proceed, token: UUID
) -> Performance:
    """Give the body an instance of its own: what was set on this one must not reach it."""
    row = row_of(workflow)
    fresh = type(workflow).from_db(workflow._state.db, list(row), list(row.values()))
    cached = workflow._state.fields_cache
    if "hero" in cached:
        # The look-up that the preconditions made; the row was locked a moment ago.
        fresh._state.fields_cache["hero"] = cached["hero"]
    return Performance(fresh, execution, verdict.definition, token, error=verdict.error, row=row)
