"""Recover executions that nobody runs: release what was claimed and not begun, end what was abandoned."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.decisions import CANCELED_MEANWHILE, Decision, ErrorRecord, decide_crash
from geneva_drive.execution.heartbeat import Heartbeat
from geneva_drive.execution.perform import ClaimedExecution
from geneva_drive.lifecycle import transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.locking import alias_of
from geneva_drive.lifecycle.unit_of_work import UnitOfWork, with_locked
from geneva_drive.logs import about
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.states import ExecutionState, WorkflowState

logger = logging.getLogger("geneva_drive.recovery")


def release(claimed: ClaimedExecution) -> bool:
    """Make an execution scheduled again that was claimed and not begun; fenced, and not counted as a crash."""

    def act(unit: UnitOfWork) -> bool:
        workflow, execution = unit.workflow, unit.execution
        if workflow.state != WorkflowState.PERFORMING:
            apply_decision(unit, CANCELED_MEANWHILE)
            return True
        stop = workflow.pause_requested_at is not None
        transitions.release(unit)
        if stop:
            transitions.hold(execution)
            transitions.move(unit, WorkflowState.PAUSED, execution.step_name)
        return True

    execution = claimed.execution
    return _with_abandoned(
        execution.pk, claimed.execution.workflow_id, claimed.token, alias_of(execution), act
    )


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

        def is_untracked(token: UUID | None = token) -> bool:
            return token not in heartbeat.tracked()

        # Asked again for each: a body may have begun meanwhile.
        if is_untracked():
            why = "its own process is alive, but no longer runs it"
            recovered += recover_one(pk, workflow_id, token, using=using, why=why, still_dead=is_untracked)
    return recovered


def recover_one(
    pk: Any, workflow_id: Any, token: UUID | None, *, using: str, why: str, still_dead: Callable[[], bool]
) -> bool:
    """End one abandoned execution and apply its step's recovery action; False when it was not abandoned.

    Parameters
    ----------
    token
        As it was when the execution was found: another one means that it began again.
    still_dead
        Asked once more under the lock, since lists grow old.
    """

    def act(unit: UnitOfWork) -> bool:
        decision = _decide(unit, why) if still_dead() else None
        if decision is None:
            return False
        apply_decision(unit, decision)
        extra = about(unit.workflow, unit.execution)
        logger.warning("Execution %s of %s was recovered: %s.", pk, unit.workflow, why, extra=extra)
        return True

    return _with_abandoned(pk, workflow_id, token, using, act)


def _with_abandoned(
    pk: Any, workflow_id: Any, token: UUID | None, using: str, act: Callable[[UnitOfWork], bool]
) -> bool:
    return bool(
        with_locked(
            using, workflow_id, act, execution_pk=pk, execution_state=ExecutionState.IN_PROGRESS, token=token
        )
    )


def _decide(unit: UnitOfWork, why: str) -> Decision | None:
    workflow, execution = unit.workflow, unit.execution
    if workflow.state != WorkflowState.PERFORMING:
        # Canceled while it ran: nobody wants it any more.
        return CANCELED_MEANWHILE
    error = ErrorRecord("geneva_drive.exceptions.ProcessDied", f"The step was interrupted: {why}.", "")
    definition = workflow.steps.resolve(execution.step_name)
    if not type(workflow)._geneva.is_startable or definition is None:
        # Code that declares the step decides better; when none comes within the grace, a person does.
        if transitions.begin_grace(unit):
            return None
        return decide_crash("pause", error=error, crashes=execution.crashes, limit=settings.MAX_CRASHES)
    return decide_crash(
        definition.on_crash or settings.RECOVERY_ACTION,
        error=error,
        crashes=execution.crashes,
        reattempts=execution.reattempts,
        limit=settings.MAX_CRASHES,
        # Claimed in the commit that ended the step before: its body may never have begun.
        counts=not execution.handed_off,
    )
