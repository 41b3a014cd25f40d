"""From the hero to its workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.contenttypes.fields import GenericRelation
from django.db.models.sql.where import AND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import Model, QuerySet
    from django.db.models.sql.where import WhereNode

__all__ = ["WorkflowRelation"]


class WorkflowRelation(GenericRelation):
    """The workflows of a model's instances: ``workflows = WorkflowRelation()``.

    A ``GenericRelation`` that deletes nothing: when a hero is deleted, the history of its workflows
    stays, and an ongoing one finds at its next step that the hero is missing.

    Parameters
    ----------
    **kwargs
        As those of ``GenericRelation``, such as ``related_query_name``.
    """

    def __init__(self, to: Any = "geneva_drive.Workflow", **kwargs: Any) -> None:
        kwargs.setdefault("content_type_field", "hero_type")
        kwargs.setdefault("object_id_field", "hero_id")
        super().__init__(to, **kwargs)

    def bulk_related_objects(self, _objs: Sequence[Model], using: str = "default") -> QuerySet[Any]:
        """Give a deletion nothing to cascade to."""
        return self.remote_field.model._base_manager.db_manager(using).none()

    # A join compares two columns as they are, or casts hero_id to the type of the hero's key, which
    # fails on the first row of another kind. So there are no columns to join by: the whole condition is
    # the "extra restriction", where the comparison is the field's own, with its casts.

    def get_joining_fields(self, reverse_join: bool = False) -> tuple[()]:  # noqa: ARG002
        return ()

    def get_reverse_joining_fields(self) -> tuple[()]:
        return ()

    def get_extra_restriction(self, alias: str | None, remote_alias: str) -> WhereNode:
        condition = super().get_extra_restriction(alias, remote_alias)
        if alias is not None:  # None inside the subquery of an exclude(), which compares by itself
            hero_id, key = self.related_fields[0]
            exact = hero_id.get_lookup("exact")
            assert exact is not None
            condition.add(exact(hero_id.get_col(remote_alias), key.get_col(alias)), AND)
        return condition
