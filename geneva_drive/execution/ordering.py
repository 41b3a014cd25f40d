"""The order of a queryset as keys: what to read of a row, and which rows come behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db import connections
from django.db.models import F, Field, Model, OrderBy, Q, QuerySet

__all__ = ["Key", "keys_of"]


@dataclass(frozen=True, slots=True)
class Key:
    """One part of an order.

    Attributes
    ----------
    written
        As the project wrote it, for messages.
    name
        What the value is called, in look-ups and on a row.
    expression
        What to annotate the rows with, under that name; None for a column that they have anyway.
    nullable, nulls_last
        Whether there may be nulls, and where they come. Databases disagree about that.
    says_nulls
        Whether the project said where nulls come. Else nothing is said in SQL either, since a database
        would not use an index then.
    """

    written: str
    name: str
    descending: bool = False
    expression: Any = None
    nullable: bool = False
    nulls_last: bool = False
    says_nulls: bool = False

    def of(self, row: Model) -> Any:
        """Return the value on a row."""
        value = getattr(row, self.name)
        return bytes(value) if isinstance(value, memoryview) else value

    def order(self) -> OrderBy:
        first = True if self.says_nulls and not self.nulls_last else None
        last = True if self.says_nulls and self.nulls_last else None
        return OrderBy(F(self.name), descending=self.descending, nulls_first=first, nulls_last=last)

    def equal(self, value: Any) -> Q:
        return Q(**{f"{self.name}__isnull": True}) if value is None else Q(**{self.name: value})

    def behind(self, value: Any) -> Q | None:
        """Rows with a later value than this one; None where there can be none."""
        if value is None:
            return None if self.nulls_last else Q(**{f"{self.name}__isnull": False})
        later = Q(**{f"{self.name}__{'lt' if self.descending else 'gt'}": value})
        return later | self.equal(None) if self.nullable and self.nulls_last else later

    def not_before(self, value: Any) -> Q | None:
        """Rows with this value or a later one; None where that is no help."""
        if value is None or (self.nullable and self.nulls_last):
            return None
        return Q(**{f"{self.name}__{'lte' if self.descending else 'gte'}": value})


def keys_of(queryset: QuerySet[Any], cursor: str | Sequence[str] | None) -> tuple[Key, ...]:
    """Return the keys to go along: those that are named, or the queryset's own order, and the primary key.

    Raises
    ------
    ValueError
        The order cannot be followed from one row to the next.
    """
    if cursor is None:
        written = _own_order(queryset)
    else:
        written = [cursor] if isinstance(cursor, str) else list(cursor)
        if not all(isinstance(name, str) for name in written):
            raise ValueError(f"cursor={cursor!r} is no name of a column, nor a list of names.")
    keys: list[Key] = []
    for number, key in enumerate(_resolved(queryset, (*written, "pk"))):
        if any(key.name == known.name for known in keys):
            continue
        keys.append(_annotated(key, number))
        if _tells_apart(queryset, key):
            break
    return tuple(keys)


def _own_order(queryset: QuerySet[Any]) -> list[Any]:
    query = queryset.query
    if query.extra_order_by:
        raise ValueError("the queryset is ordered by extra(). Use order_by(), or cursor=.")
    order = list(query.order_by)
    if not order and query.default_ordering:
        order = list(queryset.model._meta.ordering)
    return order if query.standard_ordering else [_reversed(each) for each in order]


def _reversed(written: Any) -> Any:
    if isinstance(written, str):
        return written.removeprefix("-") if written.startswith("-") else f"-{written.removeprefix('+')}"
    order = written if isinstance(written, OrderBy) else written.asc()
    return order.copy().reverse_ordering()


def _resolved(queryset: QuerySet[Any], order: Iterable[Any]) -> Iterator[Key]:
    # Where the database puts nulls when nothing is said.
    largest = connections[queryset.db].features.nulls_order_largest
    for written in order:
        said: bool | None = None
        expression: Any
        if isinstance(written, str):
            descending, expression = written.startswith("-"), written.lstrip("+-")
        else:
            ordered = written if isinstance(written, OrderBy) else written.asc()
            descending, expression = ordered.descending, ordered.expression
            if ordered.nulls_first or ordered.nulls_last:
                said = bool(ordered.nulls_last)
            if type(expression) is F:
                expression = expression.name  # type: ignore[attr-defined]
        if expression == "?":
            raise ValueError("the queryset is in random order, which no other execution could go on with.")
        nulls_last = said if said is not None else largest is not descending
        for name, column, nullable in _columns(queryset, expression):
            yield Key(
                str(written),
                name,
                descending=descending,
                expression=column,
                nullable=nullable,
                nulls_last=nulls_last,
                says_nulls=said is not None and nullable,
            )


def _columns(queryset: QuerySet[Any], expression: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield (name, expression to annotate or None, nullable) for what one part of an order stands for."""
    meta, query = queryset.model._meta, queryset.query
    if not isinstance(expression, str):
        yield str(expression), expression, True
        return
    if expression == "pk":
        # A composite key is several columns.
        for field in getattr(meta, "pk_fields", [meta.pk]):
            yield field.attname, None, False
        return
    if expression in query.annotations:
        yield expression, None if expression in query.annotation_select else F(expression), True
        return
    try:
        field = meta.get_field(expression)
    except FieldDoesNotExist:
        if "__" not in expression:
            raise ValueError(f"{meta.label} has no column {expression!r} to go along.") from None
        yield expression, F(expression), True  # a column of another table, or a part of one
        return
    if not isinstance(field, Field) or not field.concrete or field.many_to_many:
        raise ValueError(f"{expression!r} is no column of {meta.label}. Name one.")
    related: Any = field.related_model
    if related is not None and expression != field.attname and related._meta.ordering:
        raise ValueError(
            f"{expression!r} stands for the order of {related._meta.label}. Name a column: "
            f"{field.attname!r}, or '{expression}__…'."
        )
    yield field.attname, None if _is_loaded(queryset, field) else F(field.attname), field.null


def _is_loaded(queryset: QuerySet[Any], field: Field[Any, Any]) -> bool:
    names, defers = queryset.query.deferred_loading
    return (field.name in names or field.attname in names) is not defers


def _annotated(key: Key, number: int) -> Key:
    if key.expression is None:
        return key
    return Key(
        key.written,
        f"geneva_key_{number}",
        key.descending,
        key.expression,
        key.nullable,
        key.nulls_last,
        key.says_nulls,
    )


def _tells_apart(queryset: QuerySet[Any], key: Key) -> bool:
    """Whether no two rows have the same value: nothing more is needed to know where a row is."""
    if key.expression is not None or key.name in queryset.query.annotations:
        return False
    field = queryset.model._meta.get_field(key.name)
    return bool(field.unique and not field.null)
