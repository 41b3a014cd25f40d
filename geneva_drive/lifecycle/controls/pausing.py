"""Pause: now, or after the step in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geneva_drive.lifecycle import transitions
from geneva_drive.lifecycle.controls import permitting
from geneva_drive.lifecycle.controls.acting import control
from geneva_drive.lifecycle.locking import lock_active_execution
from geneva_drive.states import WorkflowState

if TYPE_CHECKING:
    from datetime import datetime

    from django.contrib.auth.models import AbstractBaseUser

    from geneva_drive.events import Pending
    from geneva_drive.models.workflow import Workflow

__all__ = ["mark_in_flight", "pause"]


def pause(workflow: Workflow, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> None:
        permitting.pause(locked)
        if locked.state == WorkflowState.PERFORMING:
            if locked.pause_requested_at is None:
                transitions.request_pause(locked, now=now)
                mark_in_flight(locked, stop=True)
            return
        execution = lock_active_execution(locked)
        if execution is not None:
            transitions.hold(execution)
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
        (transitions.hold if stop else transitions.unhold)(execution)
        transitions.flush(execution)
