"""The hero: the model instance that a workflow runs for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.db.models import Q

from geneva_drive.exceptions import HeroError, HeroKeyError, HeroRequiredError
from geneva_drive.models.hero_foreign_key import HeroForeignKey

if TYPE_CHECKING:
    from geneva_drive.models.workflow import Workflow

__all__ = ["HeroForeignKey", "check_hero", "hero_filter", "hero_label"]


def hero_content_type(hero: models.Model, using: str) -> ContentType:
    """Return the content type that a hero is stored under: that of its concrete model."""
    return ContentType.objects.db_manager(using).get_for_model(hero, for_concrete_model=True)


def hero_filter(name: str, hero: models.Model | models.QuerySet[Any] | None, using: str) -> Q:
    """Return the condition for the workflows of a hero, of a queryset of heroes, or of none."""
    if hero is None:
        return Q(**{f"{name}_type__isnull": True})
    if isinstance(hero, models.QuerySet):
        model = hero.model
        keys: Any = hero.values("pk")
        if hero.query.is_sliced:
            # MySQL and MariaDB have no LIMIT inside IN (…).
            keys = list(hero.values_list("pk", flat=True))
        content_type = ContentType.objects.db_manager(using).get_for_model(model, for_concrete_model=True)
        return Q(**{f"{name}_type": content_type, f"{name}_id__in": keys})
    if not isinstance(hero, models.Model):
        raise TypeError(f"hero must be a model instance, a queryset or None, not {hero!r}.")
    return Q(**{f"{name}_type": hero_content_type(hero, using), f"{name}_id": hero.pk})


def hero_label(workflow: Workflow) -> str:
    """Return ``app.Model key`` without a query, or "" for a workflow without a hero."""
    if workflow.hero_type_id is None:
        return ""
    content_type = ContentType.objects.db_manager(workflow._state.db).get_for_id(workflow.hero_type_id)
    return f"{content_type.app_label}.{content_type.model} {workflow.hero_id}"


def check_hero(workflow: Workflow, using: str) -> None:
    """Refuse, before anything is written, a hero that this workflow cannot have."""
    cls = type(workflow)
    label = cls._geneva.label
    hero = workflow.hero_given
    if hero is None:
        if workflow.hero_type_id is None and not cls._geneva.may_proceed_without_hero:
            raise HeroRequiredError(
                f"{label} was started without a hero. Pass one, or set "
                f"may_proceed_without_hero = True on the class if it needs none."
            )
        return
    if hero.pk is None or hero._state.adding:
        raise HeroKeyError(
            f"{label}: the hero {hero!r} is not saved yet, so there is no row that the workflow could find "
            "later. Save it first."
        )
    if hero._state.db not in (None, using):
        raise HeroKeyError(
            f"{label}: the hero {hero!r} was read from the database {hero._state.db!r}, and the workflow is "
            f"written to {using!r}. Read the hero from {using!r}, or start the workflow with "
            f"using={hero._state.db!r}."
        )
    wanted = cls._geneva.resolve_hero_model()
    if wanted is not None and not isinstance(hero, wanted):
        raise HeroError(
            f"{label} runs for {wanted._meta.label}, and the hero {hero!r} is a {hero._meta.label}."
        )
