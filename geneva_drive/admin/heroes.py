"""The models that the page which starts a workflow offers as heroes."""

from __future__ import annotations

from typing import Any

from django.contrib.contenttypes.models import ContentType

from geneva_drive.definition.registry import registry
from geneva_drive.exceptions import StepConfigurationError
from geneva_drive.workflows import BulkAction

__all__ = ["possible_heroes"]

_NEVER_ASKED_FOR = ("admin", "contenttypes", "geneva_drive", "sessions")


def possible_heroes(using: str) -> Any:
    """Return the content types that some declared workflow takes.

    Those are what a class names as ``hero_model``, and where one names none, whatever is not Django's own
    bookkeeping or ours.
    """
    named, takes_any = _wanted()
    known = ContentType.objects.using(using).order_by("app_label", "model")
    keys = []
    for content_type in known:
        model = content_type.model_class()
        if model is None:
            continue
        is_inner = content_type.app_label in _NEVER_ASKED_FOR or model._meta.label == "auth.Permission"
        if issubclass(model, named) or (takes_any and not is_inner):
            keys.append(content_type.pk)
    return known.filter(pk__in=keys)


def _wanted() -> tuple[tuple[type[Any], ...], bool]:
    named, takes_any = [], False
    for cls in registry.all():
        if cls is BulkAction:
            continue
        try:
            model = cls._geneva.resolve_hero_model()
        except StepConfigurationError:
            continue  # it starts for nobody, and says so when somebody tries
        if model is None:
            takes_any = True
        else:
            named.append(model)
    return tuple(named), takes_any
