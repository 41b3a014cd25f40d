"""The first rows of a run."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from django.apps import apps
from django.db import IntegrityError, connections, models, router

from geneva_drive import clock, tracing
from geneva_drive.definition import options as job_options_of
from geneva_drive.events import Pending, workflow_started
from geneva_drive.exceptions import AlreadyOngoingError, StepConfigurationError
from geneva_drive.lifecycle import outbox, scheduling
from geneva_drive.lifecycle.locking import in_transaction
from geneva_drive.states import ONGOING, WorkflowState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from geneva_drive.models.workflow import Workflow

__all__ = ["get_or_start", "save_new", "start_many", "touch"]

_W = TypeVar("_W", bound="Workflow")

_LOST_RACES = 5


def touch(workflow: Workflow) -> None:
    """Note that a project's own change is written now."""
    workflow.updated_at = clock.local(clock.now(workflow._state.db))


def _fill(workflow: Workflow, now: datetime) -> None:
    """Set what a new row needs; refuse what it cannot be, before anything is written."""
    cls = type(workflow)
    if not cls._geneva.is_startable:
        raise StepConfigurationError(
            f"{cls._geneva.label} cannot be started: it is abstract, or the base of all workflows. Start a "
            "class that derives from it and declares steps."
        )
    workflow.type = cls._geneva.label
    if workflow.job_options is not None:
        job_options_of.validate(workflow.job_options, f"{cls._geneva.label}.start(job_options=…)")
    first = scheduling.first_step(workflow)
    moment = clock.local(now)
    workflow.created_at = workflow.updated_at = moment
    workflow.next_step_name = first.name if first else None
    if first is None:
        workflow.state = WorkflowState.FINISHED
        workflow.started_at = workflow.transitioned_at = moment
    else:
        workflow.state = WorkflowState.READY


def _moment(at: datetime | None) -> datetime | None:
    if at is not None and not isinstance(at, datetime):
        raise TypeError(f"at={at!r} is not a moment. Give a datetime.")
    return None if at is None else clock.utc(at)


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
    _fill(workflow, now)
    base = _moment(workflow._start_at)
    pending = Pending()

    key = workflow.pk

    def work() -> None:
        pending.clear()
        # As new again, also when an earlier try was rolled back.
        workflow._state.adding, workflow.pk = True, key
        _refuse_former(workflow, alias)
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
                raise _already(workflow, existing) from error
            if not _is_of_the_slot(error):
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


def _is_of_the_slot(error: IntegrityError) -> bool:
    text = str(error)
    return "geneva_one_ongoing_workflow" in text or "ongoing_key" in text


def _already(workflow: Workflow, existing: Workflow) -> AlreadyOngoingError:
    return AlreadyOngoingError(
        f"{type(workflow)._geneva.label} is already ongoing for {workflow.hero_given!r}: workflow {existing.pk} is "
        f"{existing.state}. Use get_or_start() to join it, or allow_multiple=True for another one beside it.",
        workflow=existing,
    )


def find_ongoing(cls: type[_W], hero_type_id: Any, hero_id: Any, using: str) -> _W | None:
    """Return the run that holds the hero's slot. A locking read: a snapshot may be older than the row."""
    if hero_type_id is None:
        return None
    rows = cls._base_manager.using(using).filter(
        type__in=[cls._geneva.label, *cls._geneva.former_types],
        hero_type_id=hero_type_id,
        hero_id=hero_id,
        state__in=ONGOING,
        allow_multiple=False,
    )
    if not connections[using].features.has_select_for_update:
        return rows.first()
    # It waits for whoever holds the row, and may be the one that a deadlock is solved by.
    return in_transaction(using, lambda: rows.select_for_update().first())


def _refuse_former(workflow: Workflow, using: str) -> None:
    """Rows of a class's former types hold the slot too: checked, since no constraint spans two types."""
    formers = type(workflow)._geneva.former_types
    if not formers or workflow.hero_type_id is None or workflow.allow_multiple:
        return
    existing = (
        type(workflow)
        ._base_manager.using(using)
        .filter(
            type__in=formers,
            hero_type_id=workflow.hero_type_id,
            hero_id=workflow.hero_id,
            state__in=ONGOING,
            allow_multiple=False,
        )
        .first()
    )
    if existing is not None:
        raise _already(workflow, existing)


def get_or_start(cls: type[_W], hero: models.Model | None, *, using: str, **given: Any) -> tuple[_W, bool]:
    """Return the ongoing run of ``hero``, or start one."""
    if hero is not None:
        probe = cls(hero=hero)
        # First: a key from another database would find another hero's run.
        probe.check_hero(using)
        existing = (
            cls._base_manager.using(using)
            .filter(
                type__in=[cls._geneva.label, *cls._geneva.former_types],
                hero_type_id=probe.hero_type_id,
                hero_id=probe.hero_id,
                state__in=ONGOING,
                allow_multiple=False,
            )
            .first()
        )
        if existing is not None:
            return existing, False
    try:
        return cls.start(hero, using=using, **given), True
    except AlreadyOngoingError as error:
        if error.workflow is None:
            raise
        return error.workflow, False  # type: ignore[return-value]


def start_many(
    cls: type[_W],
    heroes: Iterable[models.Model],
    *,
    at: datetime | None,
    job_options: Mapping[str, Any] | None,
    using: str | None,
    batch_size: int,
) -> tuple[list[_W], list[models.Model]]:
    """Start runs in batches: three statements a batch where the database returns keys of bulk inserts."""
    created: list[_W] = []
    skipped: list[models.Model] = []
    batch: list[models.Model] = []
    alias = using

    def flush() -> None:
        nonlocal batch
        if not batch:
            return
        chosen = alias or cls._alias_for(batch[0])
        done, passed = _start_batch(cls, batch, at=at, job_options=job_options, using=chosen)
        created.extend(done)
        skipped.extend(passed)
        batch = []

    for hero in heroes:
        batch.append(hero)
        if len(batch) >= batch_size:
            flush()
    flush()
    return created, skipped


def _start_batch(
    cls: type[_W],
    heroes: list[models.Model],
    *,
    at: datetime | None,
    job_options: Mapping[str, Any] | None,
    using: str,
) -> tuple[list[_W], list[models.Model]]:
    now, base = clock.now(using), _moment(at)
    rows: dict[tuple[Any, Any], _W] = {}
    passed: list[models.Model] = []
    heroes_by_key: dict[tuple[Any, Any], models.Model] = {}
    for hero in heroes:
        row = cls(hero=hero, job_options=dict(job_options) if job_options is not None else None)
        row.check_hero(using)
        _fill(row, now)
        key = _slot(row.hero_type_id, row.hero_id, using)
        if key in rows:
            passed.append(hero)
            continue
        rows[key], heroes_by_key[key] = row, hero

    pending = Pending()

    def work() -> list[tuple[Any, Any]]:
        pending.clear()
        taken = set()
        for type_id in {key[0] for key in rows}:
            ids = [row.hero_id for row in rows.values() if row.hero_type_id == type_id]
            found = cls._base_manager.using(using).filter(
                type__in=[cls._geneva.label, *cls._geneva.former_types],
                hero_type_id=type_id,
                hero_id__in=ids,
                state__in=ONGOING,
                allow_multiple=False,
            )
            taken |= {_slot(type_id, each, using) for each in found.values_list("hero_id", flat=True)}
        fresh = [key for key in rows if key not in taken]
        _insert([rows[key] for key in fresh], base, now, using, pending)
        pending.send_after_commit(using)
        return [key for key in rows if key in taken]

    try:
        taken = in_transaction(using, work, repeatable=False)
    except IntegrityError:
        # Somebody else started one of them in this moment: one by one, so that only that one is skipped.
        return _start_singly(rows, heroes_by_key, passed, at=at, using=using)
    passed.extend(heroes_by_key[key] for key in taken)
    return [row for key, row in rows.items() if key not in set(taken)], passed


def _insert(rows: list[_W], base: datetime | None, now: datetime, using: str, pending: Pending) -> None:
    if not rows:
        return
    manager = rows[0]._meta.concrete_model._base_manager  # type: ignore[union-attr]
    models.QuerySet.bulk_create(manager.using(using), rows)  # the public one is refused
    if any(row.pk is None for row in rows):
        # MySQL returns no keys of a bulk insert; the slot that each row holds finds it again.
        keys = _keys_of_slots(rows, using)
        for row in rows:
            row.pk = keys[_slot(row.hero_type_id, row.hero_id, using)]
    executions = []
    trace = tracing.current()
    for row in rows:
        row._state.adding, row._state.db = False, using
        first = scheduling.first_step(row)
        if first is not None:
            executions.append(scheduling.build(row, first, now=now, base=base, trace=trace))
        pending.add(workflow_started, row)
    if executions:
        type(executions[0])._base_manager.using(using).bulk_create(executions)
        if any(execution.pk is None for execution in executions):
            found = (
                type(executions[0])
                ._base_manager.using(using)
                .filter(active_workflow__in=[r.pk for r in rows])
            )
            by_workflow = dict(found.values_list("workflow_id", "pk"))
            for execution in executions:
                execution.pk = by_workflow[execution.workflow_id]
        for execution in executions:
            execution._state.adding, execution._state.db = False, using
            outbox.send(execution)


def _keys_of_slots(rows: list[_W], using: str) -> dict[tuple[Any, str], Any]:
    found = (
        type(rows[0])
        ._base_manager.using(using)
        .filter(
            type=rows[0].type,
            hero_type_id__in={row.hero_type_id for row in rows},
            hero_id__in=[row.hero_id for row in rows],
            allow_multiple=False,
        )
        # A workflow without a runnable step is finished already; the newest is ours.
        .order_by("pk")
    )
    slots = found.values_list("hero_type_id", "hero_id", "pk")
    return {_slot(type_id, hero_id, using): pk for type_id, hero_id, pk in slots}


def _slot(hero_type_id: Any, hero_id: Any, using: str) -> tuple[Any, str]:
    """Name a hero as the column does: a UUID that was stored as text comes back as text."""
    field: Any = apps.get_model("geneva_drive", "Workflow")._meta.get_field("hero_id")
    return hero_type_id, str(field.get_db_prep_value(hero_id, connections[using]))


def _start_singly(
    rows: dict[tuple[Any, Any], _W],
    heroes: dict[tuple[Any, Any], models.Model],
    passed: list[models.Model],
    *,
    at: datetime | None,
    using: str,
) -> tuple[list[_W], list[models.Model]]:
    created = []
    for key, row in rows.items():
        row.pk, row._state.adding = None, True
        row._start_at = at
        try:
            row.save(using=using)
        except AlreadyOngoingError:
            passed.append(heroes[key])
        else:
            created.append(row)
    return created, passed
