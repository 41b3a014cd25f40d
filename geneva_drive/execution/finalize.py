"""Finalize an execution: write how its body ended and what follows, fenced by the token, and commit."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

from django.db import DatabaseError

from geneva_drive.conf import settings
from geneva_drive.definition.decisions import CANCELED_MEANWHILE, SUCCESS, Decision, decide_flow
from geneva_drive.events import Pending, execution_finalized
from geneva_drive.execution import failures, fast_path, prepare
from geneva_drive.execution.fast_path import HandOff
from geneva_drive.execution.perform import ClaimedExecution, StepResult
from geneva_drive.execution.runner import Runner
from geneva_drive.lifecycle import error_text
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.locking import alias_of, may_pass
from geneva_drive.lifecycle.unit_of_work import UnitOfWork, with_locked
from geneva_drive.logs import about
from geneva_drive.states import ExecutionState, WorkflowState

logger = logging.getLogger("geneva_drive.executor")


def finalize(claimed: ClaimedExecution, result: StepResult, runner: Runner) -> ClaimedExecution | None:
    """Write how a body ended and what follows; return the next execution if it is claimed in the same commit."""
    decision = decide(claimed, result)
    # One statement has no point between writing and committing, where a test may let its process die.
    if decision is SUCCESS and Runner.at_failpoint is None:
        handed = fast_path.hand_off(claimed, runner)
        if handed is not None:
            return handed.following
    pending = Pending()
    # After an exception nothing is claimed: the runner may have to raise it, and must hold nothing then.
    inline = result.error is None and not decision.gives_way
    try:
        handed = write_end(claimed, decision, runner, pending, inline=inline)
    except DatabaseError as error:
        if not _is_about_its_text(error, decision):
            raise
        # A column of fewer characters than Unicode has: better without accents than unrecorded.
        assert decision.error is not None
        in_ascii = replace(decision, error=error_text.ascii_only(decision.error))
        handed = write_end(claimed, in_ascii, runner, pending, inline=inline)
    pending.send()
    if handed is None:
        report_fenced(claimed)
        return None
    return handed.following


def decide(claimed: ClaimedExecution, result: StepResult) -> Decision:
    """Turn a result into a decision. After an exception policies are asked, and handlers run."""
    if result.control is not None:
        return decide_flow(result.control)
    return SUCCESS if result.error is None else failures.judge(claimed, result.error)


def write_end(
    claimed: ClaimedExecution, decision: Decision, runner: Runner, pending: Pending, *, inline: bool = True
) -> HandOff | None:
    """Write the end of an execution in a transaction; None when it was moved meanwhile.

    Parameters
    ----------
    pending
        Collects the events, for the caller to send.
    inline
        Whether what follows may be claimed in the same transaction.
    """
    using = alias_of(claimed.execution)
    write = partial(
        with_locked,
        using,
        claimed.execution.workflow_id,
        execution_pk=claimed.execution.pk,
        execution_state=ExecutionState.IN_PROGRESS,
        token=claimed.token,
        pending=pending,
    )
    try:
        # A body that is done waits for a server that restarts: what is not recorded would run again.
        return write(lambda unit: _end(unit, decision, runner, inline=inline), patience=settings.LEASE)
    except Exception as error:
        if may_pass(error, using) or _is_about_its_text(error, decision):
            raise
        # What follows could not be prepared here; the step that is done must be recorded all the same.
        logger.exception(
            "The step after execution %s could not be prepared. It stays scheduled.",
            claimed.execution.pk,
            extra=about(claimed.as_claimed(), claimed.execution),
        )
        return write(lambda unit: _end(unit, decision, runner, inline=False))


def _end(unit: UnitOfWork, decision: Decision, runner: Runner, *, inline: bool) -> HandOff:
    if unit.workflow.state != WorkflowState.PERFORMING:
        # It was canceled while the body ran: how the body ended is kept as a note.
        notes = {**decision.notes, "ended_as": decision.state}
        decision = replace(CANCELED_MEANWHILE, error=decision.error, notes=notes)
    queue = unit.execution.queue
    apply_decision(unit, decision)
    following = None
    if inline and prepare.continue_inline(unit, queue, runner):
        following = prepare.advance(unit, runner, handed_off=True)
    runner.failpoint("finalizing")
    return HandOff(following)


def _is_about_its_text(error: Exception, decision: Decision) -> bool:
    return (
        decision.error is not None
        and isinstance(error, DatabaseError)
        and error_text.is_encoding_problem(error)
    )


def report_fenced(claimed: ClaimedExecution) -> None:
    """Log and tell receivers that an end came too late and was not recorded."""
    workflow, execution = claimed.workflow, claimed.execution
    logger.warning(
        "The result of execution %s of workflow %s (%s) was discarded: the execution was recovered "
        "or changed while the step was running.",
        execution.pk,
        execution.workflow_id,
        execution.step_name,
        extra=about(claimed.as_claimed(), execution),
    )
    if execution_finalized.receivers:
        execution_finalized.send_robust(type(workflow), workflow=workflow, execution=execution, fenced=True)
