"""Execute a step: prepare, perform and finalize it, and continue with what follows in this process."""

from __future__ import annotations

from typing import Any

from django.db import connections, router, transaction
from django.db.transaction import TransactionManagementError

from geneva_drive.events import Pending
from geneva_drive.execution import failures
from geneva_drive.execution.finalize import decide, finalize, report_fenced, write_end
from geneva_drive.execution.perform import ClaimedExecution, StepResult, is_simulated_death, perform
from geneva_drive.execution.prepare import prepare
from geneva_drive.execution.recovery import release
from geneva_drive.execution.runner import Runner
from geneva_drive.lifecycle.locking import alias_of, write_first
from geneva_drive.models.step_execution import StepExecution

__all__ = ["execute", "run"]


def execute(execution_id: Any, *, using: str | None = None, runner: Runner | None = None) -> int:
    """Run a scheduled execution that is due, and what follows it as long as the runner continues.

    Returns
    -------
    int
        How many bodies were run. Zero for a duplicate or early delivery, which change nothing.

    Raises
    ------
    BaseException
        What a step raised, after it was recorded, committed and logged. Not when a policy dealt with it.
    """
    alias = using or router.db_for_write(StepExecution)
    runner = runner or Runner()
    claimed = prepare(execution_id, using=alias, runner=runner)
    return run(claimed, runner) if claimed is not None else 0


def run(claimed: ClaimedExecution, runner: Runner) -> int:
    """Perform and finalize an execution in progress, and those that are handed off to this process."""
    performed = 0
    following: ClaimedExecution | None = claimed
    while following is not None:
        current = following
        if not runner.may_begin():
            release(current)
            break
        runner.track(current.token)
        try:
            runner.failpoint("prepared")
            performed += 1
            if current.definition is not None and current.definition.atomic and current.error is None:
                following, result = _perform_atomic(current, runner)
            else:
                result = perform(current, runner)
                runner.failpoint("performed")
                following = finalize(current, result, runner)
            runner.failpoint("finalized")
        finally:
            runner.untrack(current.token)
        if result.error is not None:
            if current.reported is not None:
                failures.report(current, current.reported)
            if current.raised is not None:
                # So that the runner knows that it has been logged.
                runner.raised = current.raised
                raise current.raised
            # A policy has dealt with it. What follows was not claimed here.
            break
    return performed


class _FencedError(Exception):
    """The end of an atomic step came too late; its writes roll back."""


def _perform_atomic(claimed: ClaimedExecution, runner: Runner) -> tuple[ClaimedExecution | None, StepResult]:
    """Run the body and finalize it in one transaction; an exception is recorded in another."""
    using = alias_of(claimed.execution)
    pending = Pending()
    try:
        with transaction.atomic(using=using):
            write_first(claimed.execution.workflow_id, using)
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
            handed = write_end(claimed, decide(claimed, result), runner, pending)
            if handed is None:
                raise _FencedError
    except _FencedError:
        report_fenced(claimed)
        return None, StepResult()
    except BaseException as error:
        if is_simulated_death(error):
            raise
        failed = StepResult(error=error)
        return finalize(claimed, failed, runner), failed
    pending.send()
    return handed.following, result
