"""Start a run: fill a new row, write it with its first execution, and keep one run for each class and hero."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import IntegrityError, connections, models, router

from geneva_drive import clock, tracing
from geneva_drive.definition import options as job_options_of
from geneva_drive.events import Pending, workflow_started
from geneva_drive.exceptions import AlreadyOngoingError, StepConfigurationError
from geneva_drive.lifecycle import dispatch, scheduling
from geneva_drive.lifecycle.unit_of_work import in_transaction
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ONGOING, WorkflowState

if TYPE_CHECKING:
    from django.db.models import QuerySet


def fill(workflow: Workflow, now: datetime) -> None:
    """Set what a new row needs, and refuse what cannot be started, before anything is written."""
    cls = type(workflow)
    if not cls._geneva.is_startable:
        raise StepConfigurationError(
            f"{cls._geneva.label} cannot be started: it is abstract, or the base of all workflows. Start a "
            "subclass that declares steps."
        )
    workflow.type = cls._geneva.label
    if workflow.job_options is not None:
        job_options_of.validate(workflow.job_options, f"{cls._geneva.label}.start(job_options=…)")
    first = workflow.steps.next_after(None)
    moment = clock.local(now)
    workflow.created_at = workflow.updated_at = moment
    workflow.next_step_name = first.name if first else None
    if first is None:
        workflow.state = WorkflowState.FINISHED
        workflow.started_at = workflow.transitioned_at = moment
    else:
        workflow.state = WorkflowState.READY


def moment_of(at: datetime | None) -> datetime | None:
    """Return the time given to ``start(at=…)`` in UTC. Raises ``TypeError`` when it is not a datetime."""
    if at is not None and not isinstance(at, datetime):
        raise TypeError(f"at={at!r} is not a datetime.")
    return None if at is None else clock.utc(at)


def touch(workflow: Workflow) -> None:
    """Set when a project's own change to a row is written."""
    workflow.updated_at = clock.local(clock.now(workflow._state.db))


_W = TypeVar("_W", bound="Workflow")


def slot_of(hero_type_id: Any, hero_id: Any, using: str) -> tuple[Any, str]:
    """Return a hero's key as the column holds it: a UUID that was stored as text comes back as text."""
    field: Any = Workflow._meta.get_field("hero_id")
    return hero_type_id, str(field.get_db_prep_value(hero_id, connections[using]))


def holders(cls: type[_W], using: str, *, types: Sequence[str] | None = None, **hero: Any) -> QuerySet[_W]:
    """Return the ongoing runs of a class that allow no second one for their hero, also under former types.

    Parameters
    ----------
    types
        Labels to look under instead.
    """
    return cls._base_manager.using(using).filter(
        type__in=types if types is not None else [cls._geneva.label, *cls._geneva.former_types],
        state__in=ONGOING,
        allow_multiple=False,
        **hero,
    )


def find_ongoing(cls: type[_W], hero_type_id: Any, hero_id: Any, using: str) -> _W | None:
    """Return the hero's ongoing run. A locking read, since a snapshot may be older than the row."""
    if hero_type_id is None:
        return None
    rows = holders(cls, using, hero_type_id=hero_type_id, hero_id=hero_id)
    if not connections[using].features.has_select_for_update:
        return rows.first()
    # It waits for the row's lock, and may be the transaction that the database ends to resolve a deadlock.
    return in_transaction(using, lambda: rows.select_for_update().first())


def _find_former(workflow: Workflow, using: str) -> Workflow | None:
    """Return the hero's ongoing run of a former type. No constraint spans two types."""
    cls, hero = type(workflow), {"hero_type_id": workflow.hero_type_id, "hero_id": workflow.hero_id}
    if not cls._geneva.former_types or workflow.hero_type_id is None or workflow.allow_multiple:
        return None
    return holders(cls, using, types=cls._geneva.former_types, **hero).first()


def _already_ongoing(workflow: Workflow, existing: Workflow) -> AlreadyOngoingError:
    """Make the error that names the ongoing run, and the ways out."""
    return AlreadyOngoingError(
        f"{type(workflow)._geneva.label} is already ongoing for {workflow.hero_given!r}: workflow {existing.pk} is "
        f"{existing.state}. Use get_or_start() to join it, or allow_multiple=True for another one.",
        workflow=existing,
    )


def keys_of_slots(rows: list[_W], using: str) -> dict[tuple[Any, str], Any]:
    """Return the keys of rows whose INSERT returned none, by the slot that each holds."""
    found = (
        type(rows[0])
        ._base_manager.using(using)
        .filter(
            type=rows[0].type,
            hero_type_id__in={row.hero_type_id for row in rows},
            hero_id__in=[row.hero_id for row in rows],
            allow_multiple=False,
        )
        # A workflow without a runnable step is finished already, so there may be older ones; the newest is ours.
        .order_by("pk")
    )
    slots = found.values_list("hero_type_id", "hero_id", "pk")
    return {slot_of(type_id, hero_id, using): pk for type_id, hero_id, pk in slots}


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
    key = workflow.pk

    def work() -> None:
        # New again, also after an earlier try that was rolled back.
        workflow._state.adding, workflow.pk = True, key
        former = _find_former(workflow, alias)
        if former is not None:
            raise _already_ongoing(workflow, former)
        models.Model.save(workflow, using=alias, force_insert=True)
        first = workflow.steps.next_after(None)
        if first is not None:
            execution = scheduling.build(workflow, first, now=now, base=base, trace=tracing.current())
            execution.save(using=alias, force_insert=True)
            dispatch.send(execution)
        pending = Pending()
        pending.add(workflow_started, workflow)
        pending.send_after_commit(alias)

    for _ in range(_LOST_RACES):
        try:
            in_transaction(alias, work, repeatable=False)
            return
        except BaseException as error:
            workflow._state.adding, workflow.pk = True, key
            if not isinstance(error, IntegrityError) or isinstance(error, AlreadyOngoingError):
                raise
            existing = find_ongoing(cls, workflow.hero_type_id, workflow.hero_id, alias)
            if existing is not None:
                raise _already_ongoing(workflow, existing) from error
            if not any(name in str(error) for name in ("geneva_one_ongoing_workflow", "ongoing_key")):
                raise
            # The other run ended between our INSERT and our look: try again.
            last = error
    raise AlreadyOngoingError(
        f"{cls._geneva.label}: get_or_start() gave up, because other runs for this hero kept "
        "starting and ending. Try again."
    ) from last


def get_or_start(cls: type[_W], hero: models.Model | None, *, using: str, **given: Any) -> tuple[_W, bool]:
    """Return the ongoing run of ``hero``, or start one."""
    if hero is not None:
        probe = cls(hero=hero)
        # Before the look-up: a key from another database would find another hero's run.
        probe.check_hero(using)
        existing = holders(cls, using, hero_type_id=probe.hero_type_id, hero_id=probe.hero_id).first()
        if existing is not None:
            return existing, False
    try:
        return cls.start(hero, using=using, **given), True
    except AlreadyOngoingError as error:
        if error.workflow is None:
            raise
        return error.workflow, False
