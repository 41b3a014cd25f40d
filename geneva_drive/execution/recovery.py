"""Giving back what was claimed and not begun: it is scheduled again, and counts as no crash."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.decisions import CANCELED_MEANWHILE, Decision, ErrorRecord, decide_crash
from geneva_drive.events import Pending
from geneva_drive.execution.heartbeat import Heartbeat
from geneva_drive.execution.perform import ClaimedExecution
from geneva_drive.lifecycle import dispatch, transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.locking import alias_of, in_transaction, lock_execution, lock_workflow
from geneva_drive.logs import about
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState, WorkflowState


def release(claimed: ClaimedExecution) -> bool:
    """Return an execution that was claimed and not begun; fenced by its token, and no crash counted."""
    using = alias_of(claimed.execution)

    def work() -> bool:
        workflow = lock_workflow(Workflow, claimed.workflow_pk, using)
        execution = lock_execution(workflow, claimed.execution.pk) if workflow is not None else None
        if workflow is None or execution is None or execution.state != ExecutionState.IN_PROGRESS:
            return False
        if execution.attempt_token != claimed.token:
            return False
        return _release_locked(workflow, execution, clock.now(using))

    return in_transaction(using, work)


def _release_locked(workflow: Workflow, execution: StepExecution, now: datetime) -> bool:
    """Put a locked execution whose body was not begun back to scheduled, honouring what was asked for."""
    pending = Pending()
    if workflow.state != WorkflowState.PERFORMING:
        apply_decision(workflow, execution, CANCELED_MEANWHILE, now=now, pending=pending)
    else:
        stop = workflow.pause_requested_at is not None
        transitions.release(workflow, execution, now=now, pending=pending)
        if stop:
            transitions.put_on_hold(execution)
            transitions.move(
                workflow, WorkflowState.PAUSED, now=now, next_step_name=execution.step_name, pending=pending
            )
        transitions.flush(execution)
        dispatch.send(execution)
    transitions.flush(workflow)
    pending.send_after_commit(alias_of(workflow))
    return True


logger = logging.getLogger("geneva_drive.recovery")


def recover_own(heartbeat: Heartbeat) -> int:
    """Recover what names this process although none of its threads holds it.

    Such rows come from a commit whose acknowledgement was lost, or from a thread that died. A row younger
    than the lease may still be on its way to its thread.
    """
    using = heartbeat.using
    before = clock.now(using) - settings.LEASE
    rows = StepExecution.objects.using(using).filter(
        state=ExecutionState.IN_PROGRESS, process_id=heartbeat.process_id, started_at__lt=before
    )
    recovered = 0
    for pk, workflow_id, token in rows.values_list("pk", "workflow_id", "attempt_token"):
        # Looked at again for each: a body may have begun meanwhile.
        if token not in heartbeat.tracked():
            recovered += recover_one(
                pk,
                workflow_id,
                token,
                using=using,
                why="no thread of its own process holds it",
                still_dead=partial(_is_untracked, heartbeat, token),
            )
    return recovered


def _is_untracked(heartbeat: Heartbeat, token: UUID | None) -> bool:
    return token not in heartbeat.tracked()


def recover_one(
    pk: Any,
    workflow_id: Any,
    token: UUID | None,
    *,
    using: str,
    why: str,
    still_dead: Callable[[], bool],
) -> bool:
    """End one abandoned execution and go on by its step's action; False when it was not abandoned.

    Parameters
    ----------
    token
        As it was when the execution was found: another one means that it was begun anew.
    still_dead
        Asked once more under the lock, since lists grow old.
    """

    def work() -> bool:
        workflow = lock_workflow(Workflow, workflow_id, using)
        execution = lock_execution(workflow, pk) if workflow is not None else None
        if workflow is None or execution is None:
            return False
        if execution.state != ExecutionState.IN_PROGRESS or execution.attempt_token != token:
            return False
        if not still_dead():
            return False
        now = clock.now(using)
        decision = _decide(workflow, execution, why, now)
        if decision is None:
            transitions.flush(execution)
            return False
        pending = Pending()
        following = apply_decision(workflow, execution, decision, now=now, pending=pending)
        if following is not None:
            transitions.flush(following)
            dispatch.send(following)
        transitions.flush(workflow)
        pending.send_after_commit(using)
        extra = about(workflow, execution)
        logger.warning("Execution %s of %s was recovered: %s.", pk, workflow, why, extra=extra)
        return True

    return in_transaction(using, work)


def _decide(workflow: Workflow, execution: StepExecution, why: str, now: datetime) -> Decision | None:
    if workflow.state != WorkflowState.PERFORMING:
        # Canceled while it ran: nobody wants it any more.
        return CANCELED_MEANWHILE
    error = ErrorRecord("geneva_drive.exceptions.ProcessDied", f"The step was interrupted: {why}.", "")
    geneva = type(workflow)._geneva
    definition = workflow.steps.resolve(execution.step_name)
    if not geneva.is_startable or definition is None:
        # Code that knows the step decides better; when none comes within the grace, a person does.
        if execution.deferred_since is None:
            transitions.note_unknown(execution, now=now)
            if settings.UNDEFINED_STEP_GRACE:
                return None
        elif now - clock.utc(execution.deferred_since) < settings.UNDEFINED_STEP_GRACE:
            return None
        return decide_crash("pause", error=error, crashes=execution.crashes, limit=settings.MAX_CRASHES)
    return decide_crash(
        definition.on_crash or settings.RECOVERY_ACTION,
        error=error,
        crashes=execution.crashes,
        reattempts=execution.reattempts,
        limit=settings.MAX_CRASHES,
        # HandOff over in the commit that ended the step before: its body may never have begun.
        counts=not execution.handed_off,
    )
