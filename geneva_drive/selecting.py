"""Choosing workflows by what operators ask for: one meaning for the commands, the admin and its background work."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ValidationError
from django.db.models import Q

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.exceptions import HeroKeyError
from geneva_drive.models.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Selection", "search", "used_hero_types"]


@dataclass(frozen=True)
class Selection:
    """Conditions that all have to hold; None and False ask for nothing.

    Attributes
    ----------
    hero
        ``app.model:key``.
    overdue
        Ready, and due for longer than that.
    waiting_longer
        Parked for a signal for longer than that.
    created_after, created_before, moved_after
        Aware moments; "moved" is last finished, canceled or paused.
    search
        As `search` takes it.
    up_to
        No key beyond this one: what is added later does not belong.
    """

    type: str | None = None
    states: tuple[str, ...] = ()
    step: str | None = None
    hero: str | None = None
    error: str | None = None
    queue: str | None = None
    overdue: timedelta | None = None
    waiting_longer: timedelta | None = None
    stranded: bool = False
    created_after: datetime | None = None
    created_before: datetime | None = None
    moved_after: datetime | None = None
    search: str = ""
    up_to: Any = None

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) not in (None, False, (), "") for each in fields(self))

    def as_dict(self) -> dict[str, Any]:
        """Return what is asked for, storable."""
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if getattr(self, each.name) not in (None, False, (), "")
        }

    def apply(self, rows: Any, using: str) -> Any:
        """Narrow a queryset of workflows.

        Raises
        ------
        ValueError
            ``hero`` cannot be read.
        """
        if self.type:
            rows = rows.of_type(self.type)
        if self.states:
            rows = rows.filter(state__in=self.states)
        if self.step:
            rows = rows.at_step(self.step)
        if self.hero:
            rows = rows.filter(_hero(self.hero, using))
        if self.error:
            rows = rows.with_error(self.error)
        if self.queue:
            rows = rows.on_queue(self.queue)
        if self.overdue is not None:
            rows = rows.overdue(clock.now(using) - self.overdue)
        if self.waiting_longer is not None:
            rows = rows.waiting_since(clock.now(using) - self.waiting_longer)
        if self.stranded:
            rows = rows.stranded()
        if self.created_after is not None:
            rows = rows.filter(created_at__gte=self.created_after)
        if self.created_before is not None:
            rows = rows.filter(created_at__lt=self.created_before)
        if self.moved_after is not None:
            rows = rows.filter(transitioned_at__gte=self.moved_after)
        if self.search:
            rows = rows.filter(search(self.search, using))
        if self.up_to is not None:
            rows = rows.filter(pk__lte=self.up_to)
        return rows


def _hero(text: str, using: str) -> Q:
    label, _, key = text.partition(":")
    if not key or label.count(".") != 1:
        raise ValueError(f"{text}: write app.model:key, for example shop.order:42.")
    app_label, model = label.lower().split(".")
    found = ContentType.objects.db_manager(using).filter(app_label=app_label, model=model).first()
    if found is None:
        raise ValueError(f"{text}: there is no model {label}.")
    try:
        value = apps.get_model(label)._meta.pk.to_python(key)
    except LookupError:
        value = key  # the model is gone; its rows are still there to be found
    except ValidationError as error:
        raise ValueError(f"{text}: {key!r} is no key of {label}: {' '.join(error.messages)}") from error
    return Q(hero_type=found, hero_id=value)


def used_hero_types(using: str) -> Iterator[int]:
    """Yield the content types that heroes have, from one to the next by the index."""
    rows = Workflow._base_manager.using(using).filter(hero_type__isnull=False).order_by("hero_type_id")
    found = rows.values_list("hero_type_id", flat=True).first()
    while found is not None:
        yield found
        found = rows.filter(hero_type_id__gt=found).values_list("hero_type_id", flat=True).first()


def search(text: str, using: str) -> Q:
    """Return the condition for a search: an id, a hero's key, a hero's model, or ``app.model:key``."""
    term = text.strip()
    with contextlib.suppress(ValueError):
        return _hero(term, using)
    found = Q(pk__in=[])
    with contextlib.suppress(ValidationError):
        found |= Q(pk=Workflow._meta.pk.to_python(term))
    types = list(used_hero_types(using))
    by_model = ContentType.objects.db_manager(using).filter(pk__in=types)
    app_label, _, model = term.lower().rpartition(".")
    named = by_model.filter(model=model, **({"app_label": app_label} if app_label else {}))
    keys = list(named.values_list("pk", flat=True))
    if keys:
        found |= Q(hero_type_id__in=keys)
    with contextlib.suppress(HeroKeyError, ValueError, TypeError, ValidationError):
        key_condition = Q(hero_type_id__in=types, hero_id=term)
        # Whether the key fits the column is known only when it is prepared for this database.
        str(Workflow._base_manager.using(using).filter(key_condition).query)
        found |= key_condition
    return found


def too_long() -> timedelta:
    """Return what counts as waiting too long."""
    limit: timedelta = settings.WAITING_TOO_LONG
    return limit
