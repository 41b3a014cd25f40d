"""Cancel: nothing follows, whatever the workflow stands at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geneva_drive.definition.decisions import CANCELED_MEANWHILE
from geneva_drive.lifecycle import transitions
from geneva_drive.lifecycle.controls import permitting
from geneva_drive.lifecycle.controls.acting import control
from geneva_drive.lifecycle.locking import lock_active_execution
from geneva_drive.states import ExecutionState, WorkflowState

if TYPE_CHECKING:
    from datetime import datetime

    from django.contrib.auth.models import AbstractBaseUser

    from geneva_drive.events import Pending
    from geneva_drive.models.workflow import Workflow

__all__ = ["cancel"]


def cancel(workflow: Workflow, *, by: AbstractBaseUser | str | None, reason: str) -> None:
    def act(locked: Workflow, now: datetime, pending: Pending) -> None:
        permitting.cancel(locked)
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

    control(workflow, "cancel", act, by=by, reason=reason)
