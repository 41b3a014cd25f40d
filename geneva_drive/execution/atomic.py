"""Atomic steps: the body and its end in one transaction, on the database that holds the rows."""

from __future__ import annotations

from django.db import connections, transaction
from django.db.transaction import TransactionManagementError

from geneva_drive.definition.decisions import Decision
from geneva_drive.events import Pending
from geneva_drive.execution import points
from geneva_drive.execution.finalizing import (
    decide,
    finalize,
    finalize_locked,
    report_fenced,
    report_unprepared,
)
from geneva_drive.execution.performing import Ending, Performance, is_simulated_death, perform
from geneva_drive.execution.runner import Runner
from geneva_drive.lifecycle.locking import alias_of, may_pass, write_first
from geneva_drive.models.workflow import Workflow

__all__ = ["perform_atomic"]


class _Fenced(Exception):
    """The end of an atomic step came too late; its writes roll back."""


def perform_atomic(performance: Performance, runner: Runner) -> tuple[Performance | None, Ending]:
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
            points.reach("performed")
            following, fenced = _finalize_atomic(performance, decide(performance, ending), runner, pending)
            if fenced:
                raise _Fenced
            points.reach("finalizing")
    except _Fenced:
        report_fenced(performance, pending)
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
            return finalize_locked(performance, decision, runner, pending)
    except Exception as error:
        if may_pass(error, alias_of(performance.execution)):
            raise
        report_unprepared(performance)
        pending.clear()
        return finalize_locked(performance, decision, runner, pending, go_on=False)
