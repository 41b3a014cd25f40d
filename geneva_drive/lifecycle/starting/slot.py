"""The one slot that a hero has for a class of workflows, and who holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.apps import apps
from django.db import IntegrityError, connections

from geneva_drive.exceptions import AlreadyOngoingError
from geneva_drive.lifecycle.locking import in_transaction
from geneva_drive.states import ONGOING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet

    from geneva_drive.models.workflow import Workflow

__all__ = [
    "already_ongoing",
    "find_ongoing",
    "holders",
    "is_of_the_slot",
    "keys_of_slots",
    "refuse_former",
    "slot_of",
]

_W = TypeVar("_W", bound="Workflow")


def slot_of(hero_type_id: Any, hero_id: Any, using: str) -> tuple[Any, str]:
    """Name a hero as the column does: a UUID that was stored as text comes back as text."""
    field: Any = apps.get_model("geneva_drive", "Workflow")._meta.get_field("hero_id")
    return hero_type_id, str(field.get_db_prep_value(hero_id, connections[using]))


def holders(cls: type[_W], using: str, *, types: Sequence[str] | None = None, **hero: Any) -> QuerySet[_W]:
    """Return the rows that hold slots of a class, also under its former types; ``types`` names others."""
    return cls._base_manager.using(using).filter(
        type__in=types if types is not None else [cls._geneva.label, *cls._geneva.former_types],
        state__in=ONGOING,
        allow_multiple=False,
        **hero,
    )


def find_ongoing(cls: type[_W], hero_type_id: Any, hero_id: Any, using: str) -> _W | None:
    """Return the run that holds the hero's slot. A locking read: a snapshot may be older than the row."""
    if hero_type_id is None:
        return None
    rows = holders(cls, using, hero_type_id=hero_type_id, hero_id=hero_id)
    if not connections[using].features.has_select_for_update:
        return rows.first()
    # It waits for whoever holds the row, and may be the one that a deadlock is solved by.
    return in_transaction(using, lambda: rows.select_for_update().first())


def refuse_former(workflow: Workflow, using: str) -> None:
    """Rows of a class's former types hold the slot too: checked, since no constraint spans two types."""
    formers = type(workflow)._geneva.former_types
    if not formers or workflow.hero_type_id is None or workflow.allow_multiple:
        return
    rows = holders(
        type(workflow), using, types=formers, hero_type_id=workflow.hero_type_id, hero_id=workflow.hero_id
    )
    existing = rows.first()
    if existing is not None:
        raise already_ongoing(workflow, existing)


def already_ongoing(workflow: Workflow, existing: Workflow) -> AlreadyOngoingError:
    """Make the error that names the run in the way, and the ways out."""
    return AlreadyOngoingError(
        f"{type(workflow)._geneva.label} is already ongoing for {workflow.hero_given!r}: workflow {existing.pk} is "
        f"{existing.state}. Use get_or_start() to join it, or allow_multiple=True for another one beside it.",
        workflow=existing,
    )


def is_of_the_slot(error: IntegrityError) -> bool:
    """Whether it was the slot's constraint that refused a row."""
    text = str(error)
    return "geneva_one_ongoing_workflow" in text or "ongoing_key" in text


def keys_of_slots(rows: list[_W], using: str) -> dict[tuple[Any, str], Any]:
    """Return the keys of rows that were written without learning them, by the slot that each holds."""
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
    return {slot_of(type_id, hero_id, using): pk for type_id, hero_id, pk in slots}
