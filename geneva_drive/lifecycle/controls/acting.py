"""What every control does: lock, look again, act, and write down who did it and why, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geneva_drive import clock
from geneva_drive.events import Pending
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.lifecycle import outbox, transitions
from geneva_drive.lifecycle.locking import alias_of, in_transaction, lock_workflow

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from django.contrib.auth.models import AbstractBaseUser

    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

    Act = Callable[["Workflow", datetime, Pending], StepExecution | None]

__all__ = ["control"]


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
