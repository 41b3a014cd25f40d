"""``workflow.hero``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.contenttypes import fields as contenttypes_fields
from django.contrib.contenttypes.fields import GenericForeignKey
from django.db import models

from geneva_drive.exceptions import HeroKeyError, HeroModelGone

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HeroForeignKey"]


class _HeroAccess:
    """Mixin of the descriptor: what happens when ``workflow.hero`` is read, written and prefetched."""

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
        # What was prefetched for a model that is gone is None, too.
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
            # Django compares texts, and a UUID in a text column may be written without its dashes.
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
    """A generic foreign key that tells a model that is gone from a row that is gone.

    A missing row is ``None``. A missing model raises ``HeroModelGone``: nobody can know whether the
    row is still there.
    """
