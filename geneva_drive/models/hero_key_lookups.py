"""Comparing hero keys with keys of other types, inside the database.

PostgreSQL refuses to compare a ``varchar`` with an integer or a UUID; MySQL compares them as floating
point numbers, in which large keys are equal that are not. So what comes from a query is cast to text
where the types differ. Plain values need no cast: the field writes them in the column's own type.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import FieldError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Cast
from django.db.models.lookups import Exact, In
from django.db.models.sql.query import Query

from geneva_drive.models import columns
from geneva_drive.models.hero_key import HeroKeyField

__all__ = ["HeroKeyExact", "HeroKeyIn"]


class _Comparable:
    """Mixin of lookups: both sides as text where their types differ."""

    lhs: Any
    rhs: Any

    def _differs(self, connection: BaseDatabaseWrapper) -> tuple[bool, bool]:
        """Say whether the left and the right side need a cast."""
        if not hasattr(self.rhs, "as_sql"):
            return False, False
        kind = self.lhs.output_field.column_on(connection).kind
        try:
            field = self.rhs.output_field
            family: str | None
            if isinstance(field, HeroKeyField):
                family = columns.FAMILY_OF_KIND[field.column_on(connection).kind]
            else:
                family = columns.field_family(field, connection)
        except (FieldError, AttributeError):  # an expression that does not say what it gives
            family = None
        return (
            family != columns.FAMILY_OF_KIND[kind] and kind != "string"
        ), family != columns.FAMILY_OF_KIND[kind]

    def process_lhs(self, compiler: Any, connection: BaseDatabaseWrapper, lhs: Any = None) -> Any:
        sql, params = super().process_lhs(compiler, connection, lhs)  # type: ignore[misc]
        return (_as_text(sql, connection) if self._differs(connection)[0] else sql), params


def _as_text(sql: str, connection: BaseDatabaseWrapper) -> str:
    return f"CAST({sql} AS {models.TextField().cast_db_type(connection)})"


@HeroKeyField.register_lookup
class HeroKeyExact(_Comparable, Exact):
    def process_rhs(self, compiler: Any, connection: BaseDatabaseWrapper) -> Any:
        sql, params = super().process_rhs(compiler, connection)
        return (_as_text(sql, connection) if self._differs(connection)[1] else sql), params


@HeroKeyField.register_lookup
class HeroKeyIn(_Comparable, In):
    def process_rhs(self, compiler: Any, connection: BaseDatabaseWrapper) -> Any:
        if not self._differs(connection)[1] or not isinstance(self.rhs, Query):
            return super().process_rhs(compiler, connection)
        query, self.rhs = self.rhs, _selecting_text(self.rhs)
        try:
            return super().process_rhs(compiler, connection)
        finally:
            self.rhs = query


def _selecting_text(query: Query) -> Query:
    """Copy a subquery of one column, with that column cast to text."""
    copy = query.clone()
    copy.combined_queries = tuple(_selecting_text(part) for part in copy.combined_queries)
    if not copy.combined_queries:
        text = models.TextField()
        copy.select = tuple(Cast(column, text) for column in copy.select)  # type: ignore[arg-type]
        copy.annotations = {
            name: Cast(annotation, text) if name in copy.annotation_select else annotation
            for name, annotation in copy.annotations.items()
        }
    return copy
