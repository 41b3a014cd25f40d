"""Atomic steps: the body and its end in one transaction, on the database that holds the rows."""

from __future__ import annotations

from typing import Any

from django.db import connections, router, transaction
from django.db.transaction import TransactionManagementError

from geneva_drive.definition.decisions import Decision
from geneva_drive.events import Pending
from geneva_drive.execution import failures
from geneva_drive.execution.finalize import (
    decide,
    finalize,
    finalize_locked,
    report_fenced,
    report_unprepared,
)
from geneva_drive.execution.perform import ClaimedExecution, StepResult, is_simulated_death, perform
from geneva_drive.execution.prepare import prepare
from geneva_drive.execution.recovery import release
from geneva_drive.execution.runner import Runner
from geneva_drive.lifecycle.locking import alias_of, may_pass, write_first
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow

__all__ = ["perform_atomic", "execute", "run"]


class _Fenced(Exception):
    """The end of an atomic step came too late; its writes roll back."""


def perform_atomic(claimed: ClaimedExecution, runner: Runner) -> tuple[ClaimedExecution | None, StepResult]:
    """Run the body and finalize it in one transaction; an exception is recorded in another."""
    using = alias_of(claimed.execution)
    pending = Pending()
    result = StepResult()
    try:
        with transaction.atomic(using=using):
            write_first(Workflow, claimed.workflow_pk, using)
            result = perform(claimed, runner)
            if result.error is not None:
                raise result.error
            if connections[using].needs_rollback:
                raise TransactionManagementError(
                    f"{claimed.workflow}, step {claimed.execution.step_name}: its transaction is "
                    "marked for rollback. An error of the database was caught inside of it; catch it outside of a "
                    "transaction.atomic() block of its own."
                )
            runner.failpoint("performed")
            following, fenced = _finalize_atomic(claimed, decide(claimed, result), runner, pending)
            if fenced:
                raise _Fenced
            runner.failpoint("finalizing")
    except _Fenced:
        report_fenced(claimed, pending)
        pending.send()
        return None, StepResult()
    except BaseException as error:
        if is_simulated_death(error):
            raise
        failed = StepResult(error=error)
        return finalize(claimed, failed, runner), failed
    pending.send()
    return following, result


def _finalize_atomic(
    claimed: ClaimedExecution, decision: Decision, runner: Runner, pending: Pending
) -> tuple[ClaimedExecution | None, bool]:
    """Finalize in the body's transaction. What follows may fail to be prepared; what is done stays done."""
    try:
        with transaction.atomic(using=alias_of(claimed.execution)):
            return finalize_locked(claimed, decision, runner, pending)
    except Exception as error:
        if may_pass(error, alias_of(claimed.execution)):
            raise
        report_unprepared(claimed)
        pending.clear()
        return finalize_locked(claimed, decision, runner, pending, continue_inline=False)


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
    claimed = prepare(execution_id, using=alias, runner=runner)
    return run(claimed, runner) if claimed is not None else 0


def run(claimed: ClaimedExecution, runner: Runner) -> int:
    """Perform and finalize an execution in progress, and what is handed over."""
    performed = 0
    following: ClaimedExecution | None = claimed
    while following is not None:
        current = following
        if not runner.may_begin():
            release(current)
            return performed
        runner.track(current.token)
        try:
            runner.failpoint("prepared")
            performed += 1
            if current.definition is not None and current.definition.atomic and current.error is None:
                following, result = perform_atomic(current, runner)
            else:
                result = perform(current, runner)
                runner.failpoint("performed")
                following = finalize(current, result, runner)
            runner.failpoint("finalized")
        finally:
            runner.untrack(current.token)
        if result.error is not None:
            _tell(current, runner)
            # A policy has dealt with it. Whoever claims what follows goes on with it.
            return performed
    return performed


def _tell(claimed: ClaimedExecution, runner: Runner) -> None:
    """Report what a step raised, and raise it to the runner, unless a policy says otherwise."""
    failure = claimed.failure
    assert failure is not None
    if failure.reported is not None:
        failures.report(claimed, failure.reported)
    if failure.raised is not None:
        # So that the runner knows that it has been logged.
        runner.raised = failure.raised
        raise failure.raised
