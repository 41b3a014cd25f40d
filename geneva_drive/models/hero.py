"""The hero of a workflow: its generic foreign key, its checks, and the relation from the hero's model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib.contenttypes import fields as contenttypes_fields
from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.db.models import Q
from django.db.models.sql.where import AND

from geneva_drive.exceptions import HeroError, HeroKeyError, HeroModelGone, HeroRequiredError

if TYPE_CHECKING:
    from django.db.models import Model, QuerySet
    from django.db.models.sql.where import WhereNode


class _HeroAccess:
    """Mixin of the descriptor: reads, writes and prefetches ``workflow.hero``."""

    @property
    def _key(self) -> GenericForeignKey:
        return getattr(self, "field", self)  # type: ignore[arg-type]

    def __set__(self, instance: Any, value: Any) -> None:
        if value is not None and not isinstance(value, models.Model):
            raise HeroKeyError(f"The hero must be a model instance or None, not {value!r}.")
        super().__set__(instance, value)  # type: ignore[misc]

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        if instance is None:
            return self
        content_type_id = getattr(instance, f"{self._key.ct_field}_id")
        # A prefetch for a model that is gone also gives None.
        if content_type_id is not None and self._key.get_cached_value(instance, default=None) is None:
            self._require_model(instance, content_type_id)
        return super().__get__(instance, cls)  # type: ignore[misc]

    def _require_model(self, instance: Any, content_type_id: int) -> None:
        content_type = self._key.get_content_type(id=content_type_id, using=instance._state.db)
        if content_type.model_class() is None:
            raise HeroModelGone(
                f"Workflow {instance.pk}: its hero is a {content_type.app_label}.{content_type.model} with "
                f"the key {getattr(instance, self._key.fk_field)!r}, and that model is not installed. If it "
                "was renamed or moved, migrate its content type."
            )

    def get_prefetch_querysets(self, instances: Sequence[Any], querysets: Any = None) -> Any:
        key, name = self._key, f"{self._key.ct_field}_id"

        def model_of(instance: Any) -> type[models.Model] | None:
            content_type_id = getattr(instance, name)
            if content_type_id is None:
                return None
            return key.get_content_type(id=content_type_id, using=instance._state.db).model_class()

        def key_of(instance: Any) -> tuple[Any, Any] | None:
            model = model_of(instance)
            value = getattr(instance, key.fk_field)
            # Django compares text, and a UUID in a text column may have no dashes.
            return None if model is None or value is None else (model._meta.pk.to_python(value), model)

        known = [instance for instance in instances if model_of(instance) is not None]
        if not known:
            return [], lambda hero: hero, key_of, True, key.name, False
        heroes, _, _, *rest = super().get_prefetch_querysets(known, querysets)  # type: ignore[misc]
        return heroes, lambda hero: (hero.pk, hero.__class__), key_of, *rest


if hasattr(contenttypes_fields, "GenericForeignKeyDescriptor"):  # from Django 6.1

    class _Descriptor(_HeroAccess, contenttypes_fields.GenericForeignKeyDescriptor):  # type: ignore[misc]
        pass

    class _Base(GenericForeignKey):
        def contribute_to_class(self, cls: Any, name: str, **kwargs: Any) -> None:  # type: ignore[override]
            super().contribute_to_class(cls, name, **kwargs)
            setattr(cls, name, _Descriptor(self))

else:  # the field is its own descriptor

    class _Base(_HeroAccess, GenericForeignKey):  # type: ignore[no-redef]
        pass


class HeroForeignKey(_Base):
    """A generic foreign key that distinguishes a missing row from a missing model.

    A missing row is ``None``. A missing model raises ``HeroModelGone``, since the row may still exist.
    """


def hero_filter(name: str, hero: models.Model | models.QuerySet[Any] | None, using: str) -> Q:
    """Return the condition for the workflows of a hero, of a queryset of heroes, or of none."""
    if hero is None:
        return Q(**{f"{name}_type__isnull": True})
    if isinstance(hero, models.QuerySet):
        model: Any = hero.model
        # MySQL and MariaDB have no LIMIT inside IN (…).
        sliced = hero.query.is_sliced
        key = {f"{name}_id__in": list(hero.values_list("pk", flat=True)) if sliced else hero.values("pk")}
    elif isinstance(hero, models.Model):
        model, key = hero, {f"{name}_id": hero.pk}
    else:
        raise TypeError(f"hero must be a model instance, a queryset or None, not {hero!r}.")
    content_type = ContentType.objects.db_manager(using).get_for_model(model, for_concrete_model=True)
    return Q(**{f"{name}_type": content_type}, **key)


def check_hero(workflow: Any, using: str) -> None:
    """Refuse a hero that this workflow cannot have on ``using``, before anything is written."""
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
            f"{label}: the hero {hero!r} is not saved yet, so the workflow could not find it later. Save it "
            "first."
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


class WorkflowRelation(GenericRelation):
    """The workflows of a model's instances: ``workflows = WorkflowRelation()``.

    A ``GenericRelation`` that deletes nothing: when a hero is deleted, its workflows stay, and an ongoing one
    finds at its next step that the hero is missing. It takes the options of ``GenericRelation``.
    """

    def __init__(self, to: Any = "geneva_drive.Workflow", **kwargs: Any) -> None:
        kwargs.setdefault("content_type_field", "hero_type")
        kwargs.setdefault("object_id_field", "hero_id")
        super().__init__(to, **kwargs)

    def bulk_related_objects(self, _objs: Sequence[Model], using: str = "default") -> QuerySet[Any]:
        """Return nothing, so that a deletion does not cascade."""
        return self.remote_field.model._base_manager.db_manager(using).none()

    # A join would compare the columns without a cast, or cast hero_id to the type of the hero's key, which
    # fails on a row of another kind. So there are no joining fields: the whole condition is the "extra
    # restriction", which uses the field's own look-up with its casts.

    def get_joining_fields(self, reverse_join: bool = False) -> tuple[()]:  # noqa: ARG002
        return ()

    def get_reverse_joining_fields(self) -> tuple[()]:
        return ()

    def get_extra_restriction(self, alias: str | None, remote_alias: str) -> WhereNode:
        condition = super().get_extra_restriction(alias, remote_alias)
        if alias is not None:  # None in the subquery of an exclude(), which compares itself
            hero_id, key = self.related_fields[0]
            exact = hero_id.get_lookup("exact")
            assert exact is not None
            condition.add(exact(hero_id.get_col(remote_alias), key.get_col(alias)), AND)
        return condition
