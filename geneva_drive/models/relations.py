"""From the hero to its workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.contenttypes.fields import GenericRelation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import Model, QuerySet

__all__ = ["WorkflowRelation"]


class WorkflowRelation(GenericRelation):
    """The workflows of a model's instances: ``workflows = WorkflowRelation()``.

    A ``GenericRelation`` that deletes nothing: when a hero is deleted, the history of its workflows
    stays, and an ongoing one finds at its next step that the hero is missing.
    """

    def __init__(self, to: Any = "geneva_drive.Workflow", **kwargs: Any) -> None:
        kwargs.setdefault("content_type_field", "hero_type")
        kwargs.setdefault("object_id_field", "hero_id")
        super().__init__(to, **kwargs)

    def bulk_related_objects(self, objs: Sequence[Model], using: str = "default") -> QuerySet[Any]:
        """Give a deletion nothing to cascade to."""
        return self.remote_field.model._base_manager.db_manager(using).none()
