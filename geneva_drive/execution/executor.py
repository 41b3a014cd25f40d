"""One execution through its three phases: prepare, perform, finalize.

``execute`` is where every dispatcher ends; it is safe to call twice, since only a row that is still
scheduled is begun.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from django.db import DatabaseError, connections, router, transaction
from django.db.transaction import TransactionManagementError

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.decisions import (
    CANCELED_MEANWHILE,
    SUCCESS,
    Decision,
    decide_flow,
)
from geneva_drive.events import Pending, precondition_checked
from geneva_drive.execution import failing, handover, preconditions
from geneva_drive.execution.handover import Candidate
from geneva_drive.execution.performing import (
    Ending,
    Performance,
    is_simulated_death,
    perform,
    row_of,
)
from geneva_drive.execution.runner import Runner
from geneva_drive.lifecycle import errors, outbox, transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.locking import (
    alias_of,
    in_transaction,
    lock_execution,
    lock_workflow,
    may_pass,
    write_first,
)
from geneva_drive.logs import about
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState, WorkflowState

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["execute", "give_back", "prepare", "prepare_locked", "run"]

logger = logging.getLogger("geneva_drive.executor")

#: The testing kit's way to stop a process at a point between two phases.
at_point: Callable[[str], None] | None = None


def _point(name: str) -> None:
    if at_point is not None:
        at_point(name)


class _Fenced(Exception):
    """The end of an atomic step came too late; its writes roll back."""


def execute(execution_id: Any, *, using: str | None = None, runner: Runner | None = None) -> int:
    """Run a scheduled execution that is due, and what follows it as far as the runner goes on.

    Parameters
    ----------
    execution_id
        The only thing that crosses the boundary of a dispatcher.

    Returns
    -------
    int
        How many bodies were run. Zero for a duplicate or early delivery, which change nothing.

    Raises
    ------
    BaseException
        What a step raised, after it was recorded and committed, and logged. Not when a policy dealt with it.
    """
    alias = using or router.db_for_write(StepExecution)
    runner = runner or Runner()
    performance = prepare(execution_id, using=alias, runner=runner)
    return run(performance, runner) if performance is not None else 0


def run(performance: Performance, runner: Runner) -> int:
    """Perform and finalize an execution in progress, and what is handed over."""
    performed = 0
    following: Performance | None = performance
    while following is not None:
        current = following
        if not runner.may_begin():
            give_back(current)
            return performed
        runner.hold(current.token)
        try:
            _point("prepared")
            performed += 1
            if current.definition is not None and current.definition.atomic and current.error is None:
                following, ending = _perform_atomic(current, runner)
            else:
                ending = perform(current, runner)
                _point("performed")
                following = finalize(current, ending, runner)
            _point("finalized")
        finally:
            runner.let_go(current.token)
        if ending.error is not None:
            _tell(current, runner)
            # A policy has dealt with it. Whoever claims what follows goes on with it.
            return performed
    return performed


def _tell(performance: Performance, runner: Runner) -> None:
    """Report what a step raised, and raise it to the runner, unless a policy says otherwise."""
    failure = performance.failure
    assert failure is not None
    if failure.reported is not None:
        failing.report(performance, failure.reported)
    if failure.raised is not None:
        # So that the runner knows that it has been logged.
        runner.raised = failure.raised
        raise failure.raised


# -- prepare


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
        outbox.send(execution)
        return None
    return _advance(workflow, execution, runner, now, pending)


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
    verdict = preconditions.put_off(execution, now, errors.ascii_only(errors.record(error)))
    if isinstance(verdict, Decision):
        apply_decision(workflow, execution, verdict, now=now, pending=pending)
        transitions.flush(workflow)
    else:
        transitions.defer(execution, now=now, until=verdict.until, error=verdict.error)
        transitions.flush(execution)
        outbox.send(execution)


def _advance(
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
            outbox.send(execution)
            return None
        if isinstance(verdict, preconditions.Park):
            transitions.park(workflow, execution, now=now, timeout=verdict.timeout)
            transitions.flush(execution)
            transitions.flush(workflow)
            pending.add(precondition_checked, workflow, execution=execution, verdict="waiting")
            return None
        pending.add(precondition_checked, workflow, execution=execution, verdict=str(verdict.state))
        following = apply_decision(workflow, execution, verdict, now=now, pending=pending)
        if following is None or not _may_go_on(workflow, following, queue, runner, now):
            _leave(workflow, following)
            return None
        execution, handed_over = following, True


def _may_go_on(
    workflow: Workflow, following: StepExecution, queue: str, runner: Runner, now: datetime
) -> bool:
    return (
        workflow.state == WorkflowState.READY
        and clock.utc(following.scheduled_for) <= now
        and runner.may_go_on(following, queue)
    )


def _leave(workflow: Workflow, following: StepExecution | None) -> None:
    """Write what comes next as scheduled, for whoever is told of it."""
    if following is not None:
        transitions.flush(following)
        outbox.send(following)
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


# -- finalize


def finalize(performance: Performance, ending: Ending, runner: Runner) -> Performance | None:
    """Write how it ended and what follows, fenced; maybe with the next one already claimed."""
    decision = decide(performance, ending)
    if decision is SUCCESS:
        handed = handover.at_once(performance, runner)
        if handed is not None:
            return handed.following
    # After an exception nothing is claimed: the runner may get to see it, and must not hold anything then.
    go_on = ending.error is None and not decision.gives_way
    try:
        return _finalize(performance, decision, runner, go_on=go_on)
    except DatabaseError as error:
        if not _is_of_its_text(error, decision):
            raise
        # A column of fewer characters than Unicode has: better without accents than unrecorded.
        return _finalize(performance, _in_ascii(decision), runner, go_on=go_on)


def decide(performance: Performance, ending: Ending) -> Decision:
    """Turn an ending into a decision. After an exception policies are asked, and handlers run."""
    if ending.control is not None:
        return decide_flow(ending.control)
    if ending.error is None:
        return SUCCESS
    performance.failure = failing.judge(performance, ending.error)
    return performance.failure.decision


def _is_of_its_text(error: Exception, decision: Decision) -> bool:
    return (
        decision.error is not None and isinstance(error, DatabaseError) and errors.is_encoding_problem(error)
    )


def _in_ascii(decision: Decision) -> Decision:
    assert decision.error is not None
    return replace(decision, error=errors.ascii_only(decision.error))


def _finalize(
    performance: Performance, decision: Decision, runner: Runner, *, go_on: bool
) -> Performance | None:
    using = alias_of(performance.execution)
    pending = Pending()

    def work(go_on: bool = go_on) -> Performance | None:
        pending.clear()
        following, fenced = _finalize_locked(performance, decision, runner, pending, go_on=go_on)
        if fenced:
            _report_fenced(performance, pending)
        _point("finalizing")
        return following

    try:
        # A body that is done waits for a server that restarts: what is not recorded would run again.
        following = in_transaction(using, work, patience=settings.LEASE)
    except Exception as error:
        if may_pass(error, using) or _is_of_its_text(error, decision):
            raise
        # What follows could not be prepared here; the step that is done must be recorded all the same.
        _report_unprepared(performance)
        following = in_transaction(using, lambda: work(go_on=False))
    pending.send()
    return following


def _finalize_locked(
    performance: Performance, decision: Decision, runner: Runner, pending: Pending, *, go_on: bool = True
) -> tuple[Performance | None, bool]:
    """Inside a transaction: lock, fence, apply, and maybe prepare the next. Returns (next, fenced)."""
    using = alias_of(performance.execution)
    workflow = lock_workflow(Workflow, performance.workflow_pk, using)
    execution = lock_execution(workflow, performance.execution.pk) if workflow is not None else None
    if (
        workflow is None
        or execution is None
        or execution.state != ExecutionState.IN_PROGRESS
        or execution.attempt_token != performance.token
    ):
        return None, True
    now = clock.now(using)
    if workflow.state != WorkflowState.PERFORMING:
        decision = _meanwhile(decision)
    following = apply_decision(workflow, execution, decision, now=now, pending=pending)
    if following is not None and go_on and _may_go_on(workflow, following, execution.queue, runner, now):
        return _advance(workflow, following, runner, now, pending, handed_over=True), False
    _leave(workflow, following)
    return None, False


def _meanwhile(decision: Decision) -> Decision:
    """The workflow was canceled while the body ran: how the body ended is kept as a note."""
    return replace(
        CANCELED_MEANWHILE, error=decision.error, notes={**decision.notes, "ended_as": decision.state}
    )


def _report_unprepared(performance: Performance) -> None:
    """Log the exception that is being handled."""
    logger.exception(
        "What follows execution %s could not be prepared.",
        performance.execution.pk,
        extra=about(performance.as_claimed(), performance.execution),
    )


def _report_fenced(performance: Performance, pending: Pending) -> None:
    logger.warning(
        "Execution %s of workflow %s (%s) was moved while its body ran; its end is not recorded.",
        performance.execution.pk,
        performance.workflow_pk,
        performance.execution.step_name,
        extra=about(performance.as_claimed(), performance.execution),
    )
    transitions.finalized(performance.workflow, performance.execution, pending, fenced=True)


# -- atomic steps


def _perform_atomic(performance: Performance, runner: Runner) -> tuple[Performance | None, Ending]:
    """Run the body and finalize it in one transaction; an exception is recorded in another."""
    using = alias_of(performance.execution)
    pending = Pending()
    ending = Ending()
    try:
        with transaction.atomic(using=using):
            write_first(Workflow, performance.workflow_pk, using)
            ending = perform(performance, runner)
            if ending.error is not None:
                raise ending.error
            if connections[using].needs_rollback:
                raise TransactionManagementError(
                    f"{performance.workflow}, step {performance.execution.step_name}: its transaction is "
                    "marked for rollback. An error of the database was caught inside of it; catch it outside of a "
                    "transaction.atomic() block of its own."
                )
            _point("performed")
            following, fenced = _finalize_atomic(performance, decide(performance, ending), runner, pending)
            if fenced:
                raise _Fenced
            _point("finalizing")
    except _Fenced:
        _report_fenced(performance, pending)
        pending.send()
        return None, Ending()
    except BaseException as error:
        if is_simulated_death(error):
            raise
        failed = Ending(error=error)
        return finalize(performance, failed, runner), failed
    pending.send()
    return following, ending


def _finalize_atomic(
    performance: Performance, decision: Decision, runner: Runner, pending: Pending
) -> tuple[Performance | None, bool]:
    """Finalize in the body's transaction. What follows may fail to be prepared; what is done stays done."""
    try:
        with transaction.atomic(using=alias_of(performance.execution)):
            return _finalize_locked(performance, decision, runner, pending)
    except Exception as error:
        if may_pass(error, alias_of(performance.execution)):
            raise
        _report_unprepared(performance)
        pending.clear()
        return _finalize_locked(performance, decision, runner, pending, go_on=False)


# -- giving back


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
        return take_back(workflow, execution, clock.now(using))

    return in_transaction(using, work)


def take_back(workflow: Workflow, execution: StepExecution, now: datetime) -> bool:
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
        outbox.send(execution)
    transitions.flush(workflow)
    pending.send_after_commit(alias_of(workflow))
    return True
