"""Moving a workflow by hand: pause, resume, resume_at, skip, cancel.

Each locks the workflow, looks again at its state, moves the rows with the same functions as everybody
else, and writes down who did it and why, in one transaction.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from geneva_drive import clock, tracing
from geneva_drive.definition.decisions import CANCELED_MEANWHILE, PASSED_OVER
from geneva_drive.events import Pending
from geneva_drive.exceptions import InvalidStateError, StepNotDefinedError
from geneva_drive.lifecycle import outbox, scheduling, settling, signaling, transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.locking import (
    alias_of,
    in_transaction,
    lock_active_execution,
    lock_latest_execution,
    lock_workflow,
)
from geneva_drive.states import ENDED, ExecutionState, Outcome, WorkflowState

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from django.contrib.auth.models import AbstractBaseUser

    from geneva_drive.definition.steps import StepDefinition
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

    Act = Callable[["Workflow", datetime, Pending], StepExecution | None]

__all__ = ["cancel", "pause", "reschedule", "resume", "resume_at", "skip"]

_NO_WAIT = timedelta(0)


def pause(workflow: Workflow, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> None:
        if locked.state == WorkflowState.PERFORMING:
            if locked.pause_requested_at is None:
                transitions.request_pause(locked, now=now)
                _mark_in_flight(locked, stop=True)
            return
        if locked.state != WorkflowState.READY:
            raise _wrong_state(locked, "paused", "a ready or performing")
        execution = lock_active_execution(locked)
        if execution is not None:
            transitions.hold(execution)
            transitions.flush(execution)
        transitions.move(
            locked, WorkflowState.PAUSED, now=now, next_step_name=locked.next_step_name, pending=pending
        )

    _control(workflow, "pause", act, by=by, reason=reason)


def resume(workflow: Workflow, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> StepExecution | None:
        if locked.state == WorkflowState.PERFORMING and locked.pause_requested_at is not None:
            transitions.request_pause(locked, now=None)
            _mark_in_flight(locked, stop=False)
            return None
        if locked.state != WorkflowState.PAUSED:
            raise _wrong_state(locked, "resumed", "a paused")
        execution = lock_active_execution(locked)
        if execution is not None:
            _defined(locked, execution.step_name, "resumed")
            transitions.release(execution)
            transitions.flush(execution)
            transitions.move(
                locked, WorkflowState.READY, now=now, next_step_name=execution.step_name, pending=pending
            )
            if execution.state == ExecutionState.WAITING:
                # Before any deadline: what came while it was paused counts.
                signaling.revisit(locked, execution, now=now, pending=pending)
                return None
            return execution
        pointed_at: StepDefinition | None = _defined(locked, locked.next_step_name, "resumed")
        if pointed_at is not None and pointed_at.removed:
            settling.settle_passed_over(locked, pointed_at.name, pointed_at, now=now)
            pointed_at = locked.steps.next_after(pointed_at.name)
        return _go_on_at(locked, pointed_at, now, pending, continues=_interrupted(locked, pointed_at))

    _control(workflow, "resume", act, by=by, reason=reason)


def resume_at(workflow: Workflow, step: str, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> StepExecution | None:
        if locked.state != WorkflowState.PAUSED:
            raise _wrong_state(locked, "resumed at a step", "a paused")
        definition = locked.steps.resolve(step)
        if definition is None or definition.removed:
            what = "not defined" if definition is None else "a removed step"
            raise StepNotDefinedError(
                f"{locked} cannot be resumed at {step!r}, which is {what} in {locked.type}. {_runnable(locked)}"
            )
        stray = lock_active_execution(locked)
        if stray is not None:
            transitions.end(
                stray, replace(CANCELED_MEANWHILE, notes={"reason": f"resumed at {step}"}), now=now
            )
            transitions.flush(stray)
            transitions.finalized(locked, stray, pending)
        return _go_on_at(locked, definition, now, pending)

    _control(workflow, "resume_at", act, by=by, reason=reason, step=step)


def skip(workflow: Workflow, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> StepExecution | None:
        if locked.state not in (WorkflowState.READY, WorkflowState.PAUSED):
            raise _wrong_state(locked, "moved past a step", "a ready or paused")
        execution = lock_active_execution(locked)
        if execution is not None:
            _defined(locked, execution.step_name, "moved past it")
            notes = {"reason": "skipped by hand"}
            following = apply_decision(
                locked, execution, replace(PASSED_OVER, notes=notes), now=now, pending=pending
            )
            if following is not None:
                transitions.flush(following)
            return following
        passed = _defined(locked, locked.next_step_name, "moved past it")
        if passed is not None:
            settling.settle_passed_over(locked, passed.name, passed, now=now)
        following_step = locked.steps.next_after(passed.name) if passed is not None else None
        return _go_on_at(locked, following_step, now, pending, wait=None)

    _control(workflow, "skip", act, by=by, reason=reason)


def cancel(workflow: Workflow, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> None:
        if locked.state in ENDED:
            raise _wrong_state(locked, "canceled", "an ongoing")
        execution = lock_active_execution(locked)
        if execution is not None and execution.state == ExecutionState.IN_PROGRESS:
            # One in flight keeps its row until its body ends: whoever runs it closes it as canceled.
            transitions.hold(execution)
            transitions.flush(execution)
        elif execution is not None:
            transitions.end(execution, CANCELED_MEANWHILE, now=now)
            transitions.flush(execution)
            transitions.finalized(locked, execution, pending)
        transitions.move(locked, WorkflowState.CANCELED, now=now, next_step_name=None, pending=pending)

    _control(workflow, "cancel", act, by=by, reason=reason)


def reschedule(
    workflow: Workflow, at: datetime | None, *, by: AbstractBaseUser | str | None, reason: str
) -> None:
    def act(locked: Workflow, now: datetime, _pending: Pending) -> StepExecution | None:
        execution = lock_active_execution(locked)
        if execution is None or execution.state != ExecutionState.SCHEDULED:
            raise InvalidStateError(
                f"{locked} is {locked.state} and has no scheduled step that could be moved in time."
            )
        transitions.reschedule(execution, at=now if at is None else clock.utc(at))
        transitions.flush(execution)
        return execution

    _control(workflow, "reschedule", act, by=by, reason=reason, at=at)


def _go_on_at(
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


def _mark_in_flight(locked: Workflow, *, stop: bool) -> None:
    """Let the execution in flight know, on its own row, that it is to stop or to go on after all.

    A resumable step meets the mark in the statement that writes its cursor, without looking anywhere else.
    """
    execution = lock_active_execution(locked)
    if execution is not None:
        (transitions.hold if stop else transitions.unhold)(execution)
        transitions.flush(execution)


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


def _trace(locked: Workflow) -> dict[str, str] | None:
    """Return the trace context that the latest execution has; nothing is asked where nobody traces."""
    if not tracing.is_on():
        return None
    rows = locked.executions.db_manager(alias_of(locked)).only("metadata", "workflow_id")
    latest = rows.order_by("-pk").first()
    return latest.trace if latest is not None else None


def _control(
    workflow: Workflow,
    action: str,
    act: Act,
    *,
    by: AbstractBaseUser | str | None,
    reason: str,
    **details: Any,
) -> None:
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
        before = _picture(locked)
        execution = act(locked, now, pending)
        transitions.flush(locked)
        locked.operator_actions.db_manager(using).create(
            action=action,
            actor=_actor(by),
            reason=reason,
            before=before,
            after={**_picture(locked), **details},
            created_at=clock.local(now),
        )
        if execution is not None:
            outbox.send(execution)
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


def _picture(workflow: Workflow) -> dict[str, Any]:
    picture: dict[str, Any] = {"state": str(workflow.state), "next_step": workflow.next_step_name}
    if workflow.pause_requested_at is not None:
        picture["pause_requested"] = True
    return picture


def _actor(by: AbstractBaseUser | str | None) -> str:
    if by is None or isinstance(by, str):
        return (by or "")[:255]
    return str(by.get_username())[:255]


def _wrong_state(workflow: Workflow, done: str, wanted: str) -> InvalidStateError:
    return InvalidStateError(
        f"{workflow} is {workflow.state} and cannot be {done}: only {wanted} workflow can."
    )


def _defined(workflow: Workflow, name: str | None, done: str) -> StepDefinition | None:
    """Return the definition that a stored name stands for; None for a workflow pointed at nothing.

    Raises
    ------
    StepNotDefinedError
        This code does not declare the step. The message names the ways out.
    """
    if name is None:
        return None
    definition = workflow.steps.resolve(name)
    if definition is None:
        raise StepNotDefinedError(
            f"{workflow} cannot be {done}: its step {name!r} is not defined in {workflow.type}. "
            f"{_runnable(workflow)} Ways out: resume_at() one of them, cancel(), or declare the step again; "
            f"next time leave a gravestone, {name} = removed_step(), where the step was."
        )
    return definition


def _runnable(workflow: Workflow) -> str:
    names = ", ".join(step.name for step in workflow.steps.runnable)
    if not names:
        return "This code declares no runnable step for it."
    return f"Steps that it can be resumed at: {names}."
