"""The last phase: write how a body ended and what follows, fenced by the token, and commit."""

from __future__ import annotations

import logging
from dataclasses import replace

from django.db import DatabaseError

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.decisions import CANCELED_MEANWHILE, SUCCESS, Decision, decide_flow
from geneva_drive.events import Pending
from geneva_drive.execution import failures, fast_path, prepare
from geneva_drive.execution.perform import ClaimedExecution, StepResult
from geneva_drive.execution.runner import Runner
from geneva_drive.lifecycle import error_text, transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.locking import alias_of, in_transaction, lock_execution, lock_workflow, may_pass
from geneva_drive.logs import about
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState, WorkflowState

logger = logging.getLogger("geneva_drive.executor")


def finalize(claimed: ClaimedExecution, result: StepResult, runner: Runner) -> ClaimedExecution | None:
    """Write how it ended and what follows, fenced; maybe with the next one already claimed."""
    decision = decide(claimed, result)
    # Between writing and committing, where a test may let its process die, one statement has no point.
    if decision is SUCCESS and Runner.at_failpoint is None:
        handed = fast_path.at_once(claimed, runner)
        if handed is not None:
            return handed.following
    # After an exception nothing is claimed: the runner may get to see it, and must not hold anything then.
    continue_inline = result.error is None and not decision.gives_way
    try:
        return _finalize(claimed, decision, runner, continue_inline=continue_inline)
    except DatabaseError as error:
        if not _is_of_its_text(error, decision):
            raise
        # A column of fewer characters than Unicode has: better without accents than unrecorded.
        return _finalize(claimed, _in_ascii(decision), runner, continue_inline=continue_inline)


def decide(claimed: ClaimedExecution, result: StepResult) -> Decision:
    """Turn an result into a decision. After an exception policies are asked, and handlers run."""
    if result.control is not None:
        return decide_flow(result.control)
    if result.error is None:
        return SUCCESS
    claimed.failure = failures.judge(claimed, result.error)
    return claimed.failure.decision


def _is_of_its_text(error: Exception, decision: Decision) -> bool:
    return (
        decision.error is not None
        and isinstance(error, DatabaseError)
        and error_text.is_encoding_problem(error)
    )


def _in_ascii(decision: Decision) -> Decision:
    assert decision.error is not None
    return replace(decision, error=error_text.ascii_only(decision.error))


def _finalize(
    claimed: ClaimedExecution, decision: Decision, runner: Runner, *, continue_inline: bool
) -> ClaimedExecution | None:
    using = alias_of(claimed.execution)
    pending = Pending()

    def work(continue_inline: bool = continue_inline) -> ClaimedExecution | None:
        pending.clear()
        following, fenced = finalize_locked(
            claimed, decision, runner, pending, continue_inline=continue_inline
        )
        if fenced:
            report_fenced(claimed, pending)
        runner.failpoint("finalizing")
        return following

    try:
        # A body that is done waits for a server that restarts: what is not recorded would run again.
        following = in_transaction(using, work, patience=settings.LEASE)
    except Exception as error:
        if may_pass(error, using) or _is_of_its_text(error, decision):
            raise
        # What follows could not be prepared here; the step that is done must be recorded all the same.
        report_unprepared(claimed)
        following = in_transaction(using, lambda: work(continue_inline=False))
    pending.send()
    return following


def finalize_locked(
    claimed: ClaimedExecution,
    decision: Decision,
    runner: Runner,
    pending: Pending,
    *,
    continue_inline: bool = True,
) -> tuple[ClaimedExecution | None, bool]:
    """Inside a transaction: lock, fence, apply, and maybe prepare the next. Returns (next, fenced)."""
    using = alias_of(claimed.execution)
    workflow = lock_workflow(Workflow, claimed.workflow_pk, using)
    execution = lock_execution(workflow, claimed.execution.pk) if workflow is not None else None
    if (
        workflow is None
        or execution is None
        or execution.state != ExecutionState.IN_PROGRESS
        or execution.attempt_token != claimed.token
    ):
        return None, True
    now = clock.now(using)
    if workflow.state != WorkflowState.PERFORMING:
        decision = _meanwhile(decision)
    following = apply_decision(workflow, execution, decision, now=now, pending=pending)
    if (
        following is not None
        and continue_inline
        and prepare.may_continue_inline(workflow, following, execution.queue, runner, now)
    ):
        return prepare.advance(workflow, following, runner, now, pending, handed_off=True), False
    prepare.leave(workflow, following)
    return None, False


def _meanwhile(decision: Decision) -> Decision:
    """The workflow was canceled while the body ran: how the body ended is kept as a note."""
    return replace(
        CANCELED_MEANWHILE, error=decision.error, notes={**decision.notes, "ended_as": decision.state}
    )


def report_unprepared(claimed: ClaimedExecution) -> None:
    """Log the exception that is being handled."""
    logger.exception(
        "What follows execution %s could not be prepared.",
        claimed.execution.pk,
        extra=about(claimed.as_claimed(), claimed.execution),
    )


def report_fenced(claimed: ClaimedExecution, pending: Pending) -> None:
    logger.warning(
        "Execution %s of workflow %s (%s) was moved while its body ran; its end is not recorded.",
        claimed.execution.pk,
        claimed.workflow_pk,
        claimed.execution.step_name,
        extra=about(claimed.as_claimed(), claimed.execution),
    )
    transitions.finalized(claimed.workflow, claimed.execution, pending, fenced=True)
