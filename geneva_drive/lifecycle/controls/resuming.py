"""Resume: with what was scheduled, at the step pointed at, or at a step that a person chose."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from geneva_drive.definition.decisions import CANCELED_MEANWHILE
from geneva_drive.lifecycle import scheduling, settling, signaling, transitions
from geneva_drive.lifecycle.controls import permitting
from geneva_drive.lifecycle.controls.acting import control
from geneva_drive.lifecycle.controls.going_on import go_on_at
from geneva_drive.lifecycle.controls.pausing import mark_in_flight
from geneva_drive.lifecycle.locking import lock_active_execution, lock_latest_execution
from geneva_drive.states import ExecutionState, Outcome, WorkflowState

if TYPE_CHECKING:
    from datetime import datetime

    from django.contrib.auth.models import AbstractBaseUser

    from geneva_drive.definition.collection import StepDefinition
    from geneva_drive.events import Pending
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["resume", "resume_at"]


def resume(workflow: Workflow, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> StepExecution | None:
        if permitting.withdraws_a_pause(locked):
            transitions.request_pause(locked, now=None)
            mark_in_flight(locked, stop=False)
            return None
        execution = lock_active_execution(locked)
        pointed_at = permitting.resume(locked, execution)
        if execution is not None:
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
        if pointed_at is not None and pointed_at.removed:
            settling.settle_passed_over(locked, pointed_at.name, pointed_at, now=now)
            pointed_at = locked.steps.next_after(pointed_at.name)
        return go_on_at(locked, pointed_at, now, pending, continues=_interrupted(locked, pointed_at))

    control(workflow, "resume", act, by=by, reason=reason)


def resume_at(workflow: Workflow, step: str, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> StepExecution | None:
        definition = permitting.resume_at(locked, step)
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
