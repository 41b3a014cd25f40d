"""Starting one run, and joining the one that there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.db import IntegrityError, models, router

from geneva_drive import clock, tracing
from geneva_drive.events import Pending, workflow_started
from geneva_drive.exceptions import AlreadyOngoingError
from geneva_drive.lifecycle import outbox, scheduling
from geneva_drive.lifecycle.locking import in_transaction
from geneva_drive.lifecycle.starting.filling import fill, moment_of
from geneva_drive.lifecycle.starting.slot import (
    already_ongoing,
    find_ongoing,
    holders,
    is_of_the_slot,
    refuse_former,
)

if TYPE_CHECKING:
    from geneva_drive.models.workflow import Workflow

__all__ = ["get_or_start", "save_new"]

_W = TypeVar("_W", bound="Workflow")

_LOST_RACES = 5


def save_new(workflow: Workflow, *, using: str | None = None) -> None:
    """Write a workflow and its first execution, in one transaction, and dispatch after it.

    Raises
    ------
    AlreadyOngoingError
        After a savepoint, so that the caller's transaction stays usable.
    """
    cls = type(workflow)
    alias = using or router.db_for_write(cls, instance=workflow.hero_given)
    workflow.check_hero(alias)
    now = clock.now(alias)
    fill(workflow, now)
    base = moment_of(workflow._start_at)
    pending = Pending()

    key = workflow.pk

    def work() -> None:
        pending.clear()
        # As new again, also when an earlier try was rolled back.
        workflow._state.adding, workflow.pk = True, key
        refuse_former(workflow, alias)
        models.Model.save(workflow, using=alias, force_insert=True)
        first = scheduling.first_step(workflow)
        if first is not None:
            execution = scheduling.build(workflow, first, now=now, base=base, trace=tracing.current())
            execution.save(using=alias, force_insert=True)
            outbox.send(execution)
        pending.add(workflow_started, workflow)
        pending.send_after_commit(alias)

    for _ in range(_LOST_RACES):
        try:
            in_transaction(alias, work, repeatable=False)
            return
        except IntegrityError as error:
            workflow._state.adding = True
            workflow.pk = key
            if isinstance(error, AlreadyOngoingError):
                raise
            existing = find_ongoing(cls, workflow.hero_type_id, workflow.hero_id, alias)
            if existing is not None:
                raise already_ongoing(workflow, existing) from error
            if not is_of_the_slot(error):
                raise
            # The one in the way ended between our insert and our look: the slot is free, try again.
            last = error
        except BaseException:
            workflow._state.adding = True
            workflow.pk = key
            raise
    raise AlreadyOngoingError(
        f"{cls._geneva.label}: runs for this hero start and end faster than one can join."
    ) from last


def get_or_start(cls: type[_W], hero: models.Model | None, *, using: str, **given: Any) -> tuple[_W, bool]:
    """Return the ongoing run of ``hero``, or start one."""
    if hero is not None:
        probe = cls(hero=hero)
        # First: a key from another database would find another hero's run.
        probe.check_hero(using)
        existing = holders(cls, using, hero_type_id=probe.hero_type_id, hero_id=probe.hero_id).first()
        if existing is not None:
            return existing, False
    try:
        return cls.start(hero, using=using, **given), True
    except AlreadyOngoingError as error:
        if error.workflow is None:
            raise
        return error.workflow, False  # type: ignore[return-value]
