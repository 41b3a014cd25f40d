"""What operators do: pause, resume, resume_at, skip, cancel, reschedule.

Each locks, checks again, acts, and records who did it and why, in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from geneva_drive import clock, tracing
from geneva_drive.definition.collection import StepDefinition
from geneva_drive.definition.decisions import CANCELED_MEANWHILE, PASSED_OVER
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.lifecycle import allowed, applying, scheduling, signals, transitions
from geneva_drive.lifecycle.locking import alias_of, lock_latest_execution
from geneva_drive.lifecycle.unit_of_work import UnitOfWork, with_locked
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState, Outcome, WorkflowState

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

    By = AbstractBaseUser | str | None


Act = Callable[[UnitOfWork, StepDefinition | None], None]


# Columns that the caller's instance shows afterwards.
_STEPS = ("current_step_name", "next_step_name")
_TIMES = ("pause_requested_at", "started_at", "transitioned_at", "updated_at")
_SHOWN = ("type", "state", *_STEPS, *_TIMES)


def _control(workflow: Workflow, action: str, act: Act, by: By, reason: str, **details: Any) -> None:
    """Check that an action is allowed, let ``act`` do it, record it, and update the caller's instance.

    Parameters
    ----------
    act
        Called with the unit of work and the step that the check found, if the action needs one.
    details
        What else the record of the action says, in addition to the states before and after.

    Raises
    ------
    InvalidStateError, StepNotDefinedError
        The workflow was not started, is gone, or does not allow it.
    """
    if workflow._state.adding:
        raise InvalidStateError(
            f"{workflow.type}: this workflow was not started yet. Call start() or save()."
        )

    def act_and_note(unit: UnitOfWork) -> Workflow:
        step = allowed.check(action, unit.workflow, unit.execution, step=details.get("step"))
        before = _snapshot(unit.workflow)
        act(unit, step)
        after = {**_snapshot(unit.workflow), **details}
        note_action(unit.workflow, action, by=by, reason=reason, before=before, after=after, at=unit.moment)
        return unit.workflow

    # Not again after a lost connection: the first try may be done, and the second would be refused.
    changed = with_locked(alias_of(workflow), workflow.pk, act_and_note, active=True, repeatable=False)
    if changed is None:
        raise InvalidStateError(f"Workflow {workflow.pk} no longer exists; it cannot be changed.")
    workflow.__class__ = changed.__class__
    for name in _SHOWN:
        setattr(workflow, name, getattr(changed, name))


def _snapshot(workflow: Workflow) -> dict[str, Any]:
    snapshot: dict[str, Any] = {"state": str(workflow.state), "next_step": workflow.next_step_name}
    if workflow.pause_requested_at is not None:
        snapshot["pause_requested"] = True
    return snapshot


def note_action(
    workflow: Workflow,
    action: str,
    *,
    by: By,
    reason: str,
    after: dict[str, Any],
    before: dict[str, Any] | None = None,
    at: datetime | None = None,
) -> None:
    """Record who did something to a workflow and why, in the caller's transaction.

    Parameters
    ----------
    at
        When, as a column takes it. Default: now.
    """
    using = alias_of(workflow)
    workflow.operator_actions.db_manager(using).create(
        action=action,
        actor=((by or "") if by is None or isinstance(by, str) else str(by.get_username()))[:255],
        reason=reason,
        before=before,
        after=after,
        created_at=at or clock.local(clock.now(using)),
    )


def pause(workflow: Workflow, *, by: By, reason: str) -> None:
    def act(unit: UnitOfWork, _step: StepDefinition | None) -> None:
        locked = unit.workflow
        is_performing = locked.state == WorkflowState.PERFORMING
        if is_performing and locked.pause_requested_at is not None:
            return
        if unit.execution is not None:
            transitions.hold(unit.execution)
        if is_performing:
            transitions.request_pause(unit, requested=True)
        else:
            transitions.move(unit, WorkflowState.PAUSED, locked.next_step_name)

    _control(workflow, "pause", act, by, reason)


def resume(workflow: Workflow, *, by: By, reason: str) -> None:
    def act(unit: UnitOfWork, step: StepDefinition | None) -> None:
        locked, execution = unit.workflow, unit.execution
        if allowed.withdraws_a_pause(locked):
            transitions.request_pause(unit, requested=False)
            if execution is not None:
                transitions.hold(execution, on_hold=False)
        elif execution is None:
            if step is not None and step.removed:
                applying.settle_passed_over(unit, step.name, step)
                step = locked.steps.next_after(step.name)
            _continue_at(unit, step, continues=_interrupted(locked, step))
        else:
            transitions.take_off_hold(execution)
            transitions.move(unit, WorkflowState.READY, execution.step_name)
            if execution.state == ExecutionState.WAITING:
                # Before any deadline: what came while it was paused counts.
                signals.revisit(unit)
            else:
                unit.following = execution

    _control(workflow, "resume", act, by, reason)


def resume_at(workflow: Workflow, step: str, *, by: By, reason: str) -> None:
    def act(unit: UnitOfWork, definition: StepDefinition | None) -> None:
        if unit.execution is not None:
            transitions.end(unit, replace(CANCELED_MEANWHILE, notes={"reason": f"resumed at {step}"}))
        _continue_at(unit, definition)

    _control(workflow, "resume_at", act, by, reason, step=step)


def skip(workflow: Workflow, *, by: By, reason: str) -> None:
    def act(unit: UnitOfWork, step: StepDefinition | None) -> None:
        if unit.execution is not None:
            applying.apply_decision(unit, replace(PASSED_OVER, notes={"reason": "skipped manually"}))
            return
        if step is not None:
            applying.settle_passed_over(unit, step.name, step)
            step = unit.workflow.steps.next_after(step.name)
        _continue_at(unit, step, wait=None)

    _control(workflow, "skip", act, by, reason)


def cancel(workflow: Workflow, *, by: By, reason: str) -> None:
    def act(unit: UnitOfWork, _step: StepDefinition | None) -> None:
        if unit.execution is not None:
            if unit.execution.state == ExecutionState.IN_PROGRESS:
                # It keeps its row until its body ends: whoever runs it closes it as canceled.
                transitions.hold(unit.execution)
            else:
                transitions.end(unit, CANCELED_MEANWHILE)
        transitions.move(unit, WorkflowState.CANCELED, None)

    _control(workflow, "cancel", act, by, reason)


def reschedule(workflow: Workflow, at: datetime | None, *, by: By, reason: str) -> None:
    def act(unit: UnitOfWork, _step: StepDefinition | None) -> None:
        transitions.reschedule(unit, at=unit.now if at is None else clock.utc(at))

    _control(workflow, "reschedule", act, by, reason, at=at)


_NO_WAIT = timedelta(0)


def _continue_at(
    unit: UnitOfWork,
    step: StepDefinition | None,
    *,
    wait: timedelta | None = _NO_WAIT,
    continues: StepExecution | None = None,
) -> None:
    """Schedule a step of a workflow that has no active execution any more, or finish it."""
    if step is None:
        transitions.move(unit, WorkflowState.FINISHED, None)
        return
    locked = unit.workflow
    transitions.move(unit, WorkflowState.READY, step.name)
    trace = None
    if tracing.is_on():
        rows = locked.executions.db_manager(unit.using).only("metadata", "workflow_id")
        latest = rows.latest_first().first()
        trace = latest.trace if latest is not None else None
    unit.following = scheduling.build(locked, step, now=unit.now, wait=wait, trace=trace, continues=continues)


def _interrupted(locked: Workflow, step: StepDefinition | None) -> StepExecution | None:
    """Return the last execution if a resumable step continues from it."""
    if step is None or not step.resumable:
        return None
    latest = lock_latest_execution(locked)
    if latest is None or latest.outcome in (Outcome.SUCCESS, Outcome.SKIPPED):
        return None
    if not scheduling.is_begun(latest):
        return None
    return latest if latest.step_name in (step.name, *step.formerly) else None
