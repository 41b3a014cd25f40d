"""Start many runs in few queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from django.db import IntegrityError, models

from geneva_drive import clock, tracing
from geneva_drive.events import Pending, workflow_started
from geneva_drive.exceptions import AlreadyOngoingError
from geneva_drive.lifecycle import dispatch, scheduling
from geneva_drive.lifecycle.starting import fill, holders, keys_of_slots, moment_of, slot_of
from geneva_drive.lifecycle.unit_of_work import in_transaction
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow

_W = TypeVar("_W", bound="Workflow")


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
    remaining = iter(heroes)
    while batch := list(islice(remaining, max(1, batch_size))):
        alias = using or cls._alias_for(batch[0])
        done, passed = _start_batch(cls, batch, at=at, job_options=job_options, using=alias)
        created.extend(done)
        skipped.extend(passed)
    return created, skipped


def _start_batch(
    cls: type[_W],
    heroes: list[models.Model],
    *,
    at: datetime | None,
    job_options: Mapping[str, Any] | None,
    using: str,
) -> tuple[list[_W], list[models.Model]]:
    now, base = clock.now(using), moment_of(at)
    rows: dict[tuple[Any, Any], _W] = {}
    passed: list[Any] = []
    for hero in heroes:
        row = cls(hero=hero, job_options=dict(job_options) if job_options is not None else None)
        row.check_hero(using)
        fill(row, now)
        key = slot_of(row.hero_type_id, row.hero_id, using)
        if key in rows:
            passed.append(hero)
        else:
            rows[key] = row

    def work() -> set[tuple[Any, Any]]:
        taken = set()
        for type_id in {key[0] for key in rows}:
            ids = [row.hero_id for row in rows.values() if row.hero_type_id == type_id]
            found = holders(cls, using, hero_type_id=type_id, hero_id__in=ids)
            taken |= {slot_of(type_id, each, using) for each in found.values_list("hero_id", flat=True)}
        _insert([row for key, row in rows.items() if key not in taken], base, now, using)
        return taken & rows.keys()

    try:
        taken = in_transaction(using, work, repeatable=False)
    except IntegrityError:
        # Somebody else has just started one of them: one by one, so that only that one is skipped.
        created = []
        for row in rows.values():
            row.pk, row._state.adding, row._start_at = None, True, at
            try:
                row.save(using=using)
            except AlreadyOngoingError:
                passed.append(row.hero_given)
            else:
                created.append(row)
        return created, passed
    passed.extend(row.hero_given for key, row in rows.items() if key in taken)
    return [row for key, row in rows.items() if key not in taken], passed


def _insert(rows: list[_W], base: datetime | None, now: datetime, using: str) -> None:
    if not rows:
        return
    pending = Pending()
    manager = rows[0]._meta.concrete_model._base_manager  # type: ignore[union-attr]
    models.QuerySet.bulk_create(manager.using(using), rows)  # Workflow's own manager refuses it
    if any(row.pk is None for row in rows):
        # MySQL returns no keys of a bulk insert; the slot that each row holds finds it again.
        keys = keys_of_slots(rows, using)
        for row in rows:
            row.pk = keys[slot_of(row.hero_type_id, row.hero_id, using)]
    executions = []
    trace = tracing.current()
    for row in rows:
        row._state.adding, row._state.db = False, using
        first = row.steps.next_after(None)
        if first is not None:
            executions.append(scheduling.build(row, first, now=now, base=base, trace=trace))
        pending.add(workflow_started, row)
    if executions:
        all_executions = StepExecution._base_manager.using(using)
        all_executions.bulk_create(executions)
        if any(execution.pk is None for execution in executions):
            found = all_executions.filter(active_workflow__in=[row.pk for row in rows])
            by_workflow = dict(found.values_list("workflow_id", "pk"))
            for execution in executions:
                execution.pk = by_workflow[execution.workflow_id]
        for execution in executions:
            execution._state.adding, execution._state.db = False, using
            dispatch.send(execution)
    pending.send_after_commit(using)
