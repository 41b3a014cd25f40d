"""Reschedule: move the scheduled step in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geneva_drive import clock
from geneva_drive.lifecycle import transitions
from geneva_drive.lifecycle.controls import permitting
from geneva_drive.lifecycle.controls.acting import control
from geneva_drive.lifecycle.locking import lock_active_execution

if TYPE_CHECKING:
    from datetime import datetime

    from django.contrib.auth.models import AbstractBaseUser

    from geneva_drive.events import Pending
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["reschedule"]


def reschedule(
    workflow: Workflow, at: datetime | None, *, by: AbstractBaseUser | str | None, reason: str
) -> None:
    def act(locked: Workflow, now: datetime, _pending: Pending) -> StepExecution | None:
        execution = permitting.reschedule(locked, lock_active_execution(locked))
        transitions.reschedule(execution, at=now if at is None else clock.utc(at))
        transitions.flush(execution)
        return execution

    control(workflow, "reschedule", act, by=by, reason=reason, at=at)
