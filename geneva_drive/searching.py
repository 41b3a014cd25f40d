"""Finding workflows by what people type: an id, a hero's key, a hero's model."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import EmptyResultSet, ValidationError
from django.db.models import Q

from geneva_drive.exceptions import HeroKeyError
from geneva_drive.models.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["hero_condition", "search"]


def hero_condition(text: str, using: str) -> Q:
    """Return the condition for ``app.model:key``, or for a bare key of whatever model.

    Raises
    ------
    ValueError
        It names no model, or the key cannot be one of it.
    """
    label, colon, key = text.strip().rpartition(":")
    if not colon:
        condition = _any_hero(key, using)
        if not _fits(condition, using):
            raise ValueError(
                f"{text!r} is no hero's key here: write app.model:key, for example shop.order:42."
            )
        return condition
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
    condition = Q(hero_type=found, hero_id=value)
    return condition if _fits(condition, using) else Q(pk__in=[])


def search(text: str, using: str) -> Q:
    """Return the condition for a search: an id, a hero's key, a hero's model, or ``app.model:key``."""
    term = text.strip()
    if ":" in term:
        with contextlib.suppress(ValueError):
            return hero_condition(term, using)
    found = Q(pk__in=[])
    with contextlib.suppress(ValidationError):
        found |= Q(pk=Workflow._meta.pk.to_python(term))
    by_key = _any_hero(term, using)
    if _fits(by_key, using):
        found |= by_key
    app_label, _, model = term.lower().rpartition(".")
    named = ContentType.objects.db_manager(using).filter(pk__in=list(_hero_types(using)), model=model)
    if app_label:
        named = named.filter(app_label=app_label)
    keys = list(named.values_list("pk", flat=True))
    return found | Q(hero_type_id__in=keys) if keys else found


def _any_hero(key: str, using: str) -> Q:
    # With its types named, the index of type and key is entered.
    return Q(hero_type_id__in=list(_hero_types(using)), hero_id=key)


def _fits(condition: Q, using: str) -> bool:
    """Whether the key can be in the column. That is known only when it is prepared for this database."""
    try:
        str(Workflow._base_manager.using(using).filter(condition).query)
    except EmptyResultSet:
        return True
    except (HeroKeyError, ValueError, TypeError, OverflowError, ValidationError):
        return False
    return True


def _hero_types(using: str) -> Iterator[int]:
    """Yield the content types that heroes have, from one to the next by the index."""
    rows = Workflow._base_manager.using(using).filter(hero_type__isnull=False).order_by("hero_type_id")
    found = rows.values_list("hero_type_id", flat=True).first()
    while found is not None:
        yield found
        found = rows.filter(hero_type_id__gt=found).values_list("hero_type_id", flat=True).first()
