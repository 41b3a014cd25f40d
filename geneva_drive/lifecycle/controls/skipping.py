"""Skip: pass over the step that is scheduled or pointed at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from geneva_drive.definition.decisions import PASSED_OVER
from geneva_drive.lifecycle import settling, transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.controls import permitting
from geneva_drive.lifecycle.controls.acting import control
from geneva_drive.lifecycle.controls.going_on import go_on_at
from geneva_drive.lifecycle.locking import lock_active_execution

if TYPE_CHECKING:
    from datetime import datetime

    from django.contrib.auth.models import AbstractBaseUser

    from geneva_drive.events import Pending
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["skip"]


def skip(workflow: Workflow, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> StepExecution | None:
        execution = lock_active_execution(locked)
        passed = permitting.skip(locked, execution)
        if execution is not None:
            notes = {"reason": "skipped by hand"}
            following = apply_decision(
                locked, execution, replace(PASSED_OVER, notes=notes), now=now, pending=pending
            )
            if following is not None:
                transitions.flush(following)
            return following
        if passed is not None:
            settling.settle_passed_over(locked, passed.name, passed, now=now)
        following_step = locked.steps.next_after(passed.name) if passed is not None else None
        return go_on_at(locked, following_step, now, pending, wait=None)

    control(workflow, "skip", act, by=by, reason=reason)
