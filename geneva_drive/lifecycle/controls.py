"""What every control does: lock, look again, act, and write down who did it and why, in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from geneva_drive import clock, tracing
from geneva_drive.definition.collection import StepDefinition
from geneva_drive.definition.decisions import CANCELED_MEANWHILE, PASSED_OVER
from geneva_drive.events import Pending
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.lifecycle import allowed, applying, dispatch, scheduling, signals, transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.locking import (
    alias_of,
    in_transaction,
    lock_active_execution,
    lock_latest_execution,
    lock_workflow,
)
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState, Outcome, WorkflowState

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser


Act = Callable[[Workflow, datetime, Pending], StepExecution | None]


def control(
    workflow: Workflow,
    action: str,
    act: Act,
    *,
    by: AbstractBaseUser | str | None,
    reason: str,
    **details: Any,
) -> None:
    """Let ``act`` move the locked workflow, record it, and let the caller's instance show the result.

    Parameters
    ----------
    act
        Called with the locked workflow, the database's time and the events to send after the commit. Returns
        the execution to dispatch, if there is one; the workflow is flushed after it.
    details
        What else the record of the action says, beside the states before and after.

    Raises
    ------
    InvalidStateError
        The workflow was not started, or is gone; and whatever ``act`` refuses.
    """
    if workflow._state.adding:
        raise InvalidStateError(
            f"{workflow.type}: this workflow was not started yet. Call start() or save()."
        )
    using = alias_of(workflow)
    pending = Pending()

    def work() -> Workflow:
        pending.clear()
        locked = lock_workflow(type(workflow), workflow.pk, using)
        if locked is None:
            raise InvalidStateError(f"Workflow {workflow.pk} is gone; it cannot be changed.")
        now = clock.now(using)
        before = _snapshot(locked)
        execution = act(locked, now, pending)
        transitions.flush(locked)
        locked.operator_actions.db_manager(using).create(
            action=action,
            actor=_actor(by),
            reason=reason,
            before=before,
            after={**_snapshot(locked), **details},
            created_at=clock.local(now),
        )
        if execution is not None:
            dispatch.send(execution)
        pending.send_after_commit(using)
        return locked

    # Not again after a lost connection: the first try may be done, and the second would be refused.
    _copy(in_transaction(using, work, repeatable=False), workflow)


def _copy(source: Workflow, target: Workflow) -> None:
    """Let the caller's instance show what was written."""
    target.__class__ = source.__class__
    for name in ("type", "state", "current_step_name", "next_step_name", "pause_requested_at"):
        setattr(target, name, getattr(source, name))
    for name in ("started_at", "transitioned_at", "updated_at"):
        setattr(target, name, getattr(source, name))


def _snapshot(workflow: Workflow) -> dict[str, Any]:
    snapshot: dict[str, Any] = {"state": str(workflow.state), "next_step": workflow.next_step_name}
    if workflow.pause_requested_at is not None:
        snapshot["pause_requested"] = True
    return snapshot


def _actor(by: AbstractBaseUser | str | None) -> str:
    if by is None or isinstance(by, str):
        return (by or "")[:255]
    return str(by.get_username())[:255]


_NO_WAIT = timedelta(0)


def go_on_at(
    locked: Workflow,
    definition: StepDefinition | None,
    now: datetime,
    pending: Pending,
    *,
    wait: timedelta | None = _NO_WAIT,
    continues: StepExecution | None = None,
) -> StepExecution | None:
    """Schedule a step of a workflow that has no active execution, or finish it."""
    state = WorkflowState.READY if definition is not None else WorkflowState.FINISHED
    name = definition.name if definition is not None else None
    transitions.move(locked, state, now=now, next_step_name=name, pending=pending)
    if definition is None:
        return None
    execution = scheduling.build(
        locked, definition, now=now, wait=wait, trace=_trace(locked), continues=continues
    )
    transitions.flush(execution)
    return execution


def _trace(locked: Workflow) -> dict[str, str] | None:
    """Return the trace context that the latest execution has; nothing is asked where nobody traces."""
    if not tracing.is_on():
        return None
    rows = locked.executions.db_manager(alias_of(locked)).only("metadata", "workflow_id")
    latest = rows.latest_first().first()
    return latest.trace if latest is not None else None


def pause(workflow: Workflow, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> None:
        allowed.check("pause", locked)
        if locked.state == WorkflowState.PERFORMING:
            if locked.pause_requested_at is None:
                transitions.request_pause(locked, now=now)
                mark_in_flight(locked, stop=True)
            return
        execution = lock_active_execution(locked)
        if execution is not None:
            transitions.put_on_hold(execution)
            transitions.flush(execution)
        transitions.move(
            locked, WorkflowState.PAUSED, now=now, next_step_name=locked.next_step_name, pending=pending
        )

    control(workflow, "pause", act, by=by, reason=reason)


def mark_in_flight(locked: Workflow, *, stop: bool) -> None:
    """Let the execution in flight know, on its own row, that it is to stop or to go on after all.

    A resumable step meets the mark in the statement that writes its cursor, without looking anywhere else.
    """
    execution = lock_active_execution(locked)
    if execution is not None:
        (transitions.put_on_hold if stop else transitions.clear_hold)(execution)
        transitions.flush(execution)


def resume(workflow: Workflow, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> StepExecution | None:
        if allowed.withdraws_a_pause(locked):
            transitions.request_pause(locked, now=None)
            mark_in_flight(locked, stop=False)
            return None
        execution = lock_active_execution(locked)
        pointed_at = allowed.check("resume", locked, execution)
        if execution is not None:
            transitions.take_off_hold(execution)
            transitions.flush(execution)
            transitions.move(
                locked, WorkflowState.READY, now=now, next_step_name=execution.step_name, pending=pending
            )
            if execution.state == ExecutionState.WAITING:
                # Before any deadline: what came while it was paused counts.
                signals.revisit(locked, execution, now=now, pending=pending)
                return None
            return execution
        if pointed_at is not None and pointed_at.removed:
            applying.settle_passed_over(locked, pointed_at.name, pointed_at, now=now)
            pointed_at = locked.steps.next_after(pointed_at.name)
        return go_on_at(locked, pointed_at, now, pending, continues=_interrupted(locked, pointed_at))

    control(workflow, "resume", act, by=by, reason=reason)


def resume_at(workflow: Workflow, step: str, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> StepExecution | None:
        definition = allowed.check("resume_at", locked, step=step)
        stray = lock_active_execution(locked)
        if stray is not None:
            transitions.end(
                stray, replace(CANCELED_MEANWHILE, notes={"reason": f"resumed at {step}"}), now=now
            )
            transitions.flush(stray)
            transitions.finalized(locked, stray, pending)
        return go_on_at(locked, definition, now, pending)

    control(workflow, "resume_at", act, by=by, reason=reason, step=step)


def _interrupted(locked: Workflow, definition: StepDefinition | None) -> StepExecution | None:
    """Return the last execution if it is one that a resumable step goes on from."""
    if definition is None or not definition.resumable:
        return None
    latest = lock_latest_execution(locked)
    if latest is None or latest.outcome in (Outcome.SUCCESS, Outcome.SKIPPED):
        return None
    if not scheduling.is_begun(latest):
        return None
    return latest if latest.step_name in (definition.name, *definition.formerly) else None


def skip(workflow: Workflow, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> StepExecution | None:
        execution = lock_active_execution(locked)
        passed = allowed.check("skip", locked, execution)
        if execution is not None:
            notes = {"reason": "skipped by hand"}
            following = apply_decision(
                locked, execution, replace(PASSED_OVER, notes=notes), now=now, pending=pending
            )
            if following is not None:
                transitions.flush(following)
            return following
        if passed is not None:
            applying.settle_passed_over(locked, passed.name, passed, now=now)
        following_step = locked.steps.next_after(passed.name) if passed is not None else None
        return go_on_at(locked, following_step, now, pending, wait=None)

    control(workflow, "skip", act, by=by, reason=reason)


def cancel(workflow: Workflow, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> None:
        allowed.check("cancel", locked)
        execution = lock_active_execution(locked)
        if execution is not None and execution.state == ExecutionState.IN_PROGRESS:
            # One in flight keeps its row until its body ends: whoever runs it closes it as canceled.
            transitions.put_on_hold(execution)
            transitions.flush(execution)
        elif execution is not None:
            transitions.end(execution, CANCELED_MEANWHILE, now=now)
            transitions.flush(execution)
            transitions.finalized(locked, execution, pending)
        transitions.move(locked, WorkflowState.CANCELED, now=now, next_step_name=None, pending=pending)

    control(workflow, "cancel", act, by=by, reason=reason)


def reschedule(
    workflow: Workflow, at: datetime | None, *, by: AbstractBaseUser | str | None, reason: str
) -> None:
    def act(locked: Workflow, now: datetime, _pending: Pending) -> StepExecution | None:
        execution = lock_active_execution(locked)
        allowed.check("reschedule", locked, execution)
        assert execution is not None
        transitions.reschedule(execution, at=now if at is None else clock.utc(at))
        transitions.flush(execution)
        return execution

    control(workflow, "reschedule", act, by=by, reason=reason, at=at)
