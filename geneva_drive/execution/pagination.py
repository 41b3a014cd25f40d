"""Keyset pages of a project's queryset, for resumable steps: its order as keys, and the rows after a cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.core.exceptions import FieldDoesNotExist
from django.db import connections
from django.db.models import F, Field, Manager, Model, OrderBy, Q, QuerySet

from geneva_drive.exceptions import InvalidStateError


@dataclass(frozen=True, slots=True)
class Key:
    """One part of an order."""

    written: str  # as the project may have written it, for messages
    name: str  # the value's name in look-ups and on a row
    descending: bool = False
    # What to annotate the rows with, under that name; None for a column that is loaded anyway.
    expression: Any = None
    # Whether there may be nulls, and (below) whether they come last.
    nullable: bool = False
    nulls_last: bool = False
    # Whether the project said where nulls come. Otherwise the SQL does not say it either, since a
    # database would not use an index then.
    says_nulls: bool = False

    def of(self, row: Model) -> Any:
        """Return the value on a row."""
        return _plain(getattr(row, self.name))

    def order(self) -> OrderBy:
        nulls = {"nulls_last" if self.nulls_last else "nulls_first": True} if self.says_nulls else {}
        return OrderBy(F(self.name), descending=self.descending, **nulls)

    def equal(self, value: Any) -> Q:
        return Q(**{f"{self.name}__isnull": True}) if value is None else Q(**{self.name: value})

    def behind(self, value: Any) -> Q | None:
        """Return the condition for a later value than this one; None where there can be none."""
        if value is None:
            return None if self.nulls_last else Q(**{f"{self.name}__isnull": False})
        later = Q(**{f"{self.name}__{'lt' if self.descending else 'gt'}": value})
        return later | self.equal(None) if self.nullable and self.nulls_last else later

    def not_before(self, value: Any) -> Q | None:
        """Return the condition for this value or a later one; None where an index would not help."""
        if value is None or (self.nullable and self.nulls_last):
            return None
        return Q(**{f"{self.name}__{'lte' if self.descending else 'gte'}": value})


def keys_of(queryset: QuerySet[Any], cursor: str | Sequence[str] | None) -> tuple[Key, ...]:
    """Return the keys of the order: the named columns, or the queryset's own order, and the primary key.

    Raises
    ------
    ValueError
        The order does not determine which row comes next.
    """
    if cursor is None:
        written = _own_order(queryset)
    else:
        written = [cursor] if isinstance(cursor, str) else list(cursor)
        if not all(isinstance(name, str) for name in written):
            raise ValueError(f"cursor={cursor!r} is not a column name or a list of column names.")
    keys: list[Key] = []
    for number, key in enumerate(_resolved(queryset, (*written, "pk"))):
        if any(key.name == known.name for known in keys):
            continue
        if key.expression is not None:
            keys.append(replace(key, name=f"geneva_key_{number}"))
            continue
        keys.append(key)
        if key.name not in queryset.query.annotations:
            field = queryset.model._meta.get_field(key.name)
            if field.unique and not field.null:
                break  # no two rows have the same value
    return tuple(keys)


def _own_order(queryset: QuerySet[Any]) -> list[Any]:
    query = queryset.query
    if query.extra_order_by:
        raise ValueError("the queryset is ordered by extra(). Use order_by(), or cursor=.")
    order = list(query.order_by)
    if not order and query.default_ordering:
        order = list(queryset.model._meta.ordering)
    return order if query.standard_ordering else [_as_order_by(each).reverse_ordering() for each in order]


def _as_order_by(written: Any) -> OrderBy:
    if isinstance(written, str):
        written = OrderBy(F(written.lstrip("+-")), descending=written.startswith("-"))
    return written.copy() if isinstance(written, OrderBy) else written.asc()


def _resolved(queryset: QuerySet[Any], order: Iterable[Any]) -> Iterator[Key]:
    # Where the database puts nulls by default.
    largest = connections[queryset.db].features.nulls_order_largest
    for written in order:
        ordered = _as_order_by(written)
        expression: Any = ordered.expression
        if type(expression) is F:
            expression = expression.name  # type: ignore[attr-defined]
        if expression == "?":
            raise ValueError("the queryset is in random order, which another execution could not continue.")
        said = bool(ordered.nulls_first or ordered.nulls_last)
        nulls_last = bool(ordered.nulls_last) if said else largest is not ordered.descending
        for name, column, nullable in _columns(queryset, expression):
            yield Key(
                f"{'-' if ordered.descending else ''}{expression}",
                name,
                descending=ordered.descending,
                expression=column,
                nullable=nullable,
                nulls_last=nulls_last,
                says_nulls=said and nullable,
            )


def _columns(queryset: QuerySet[Any], expression: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield (name, expression to annotate or None, nullable) for each column of one part of an order."""
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
            raise ValueError(f"{meta.label} has no column {expression!r}.") from None
        yield expression, F(expression), True  # a column of another table, or a transform
        return
    if not isinstance(field, Field) or not field.concrete or field.many_to_many:
        raise ValueError(f"{expression!r} is no column of {meta.label}. Name one.")
    related: Any = field.related_model
    if related is not None and expression != field.attname and related._meta.ordering:
        raise ValueError(
            f"{expression!r} stands for the order of {related._meta.label}. Name a column: "
            f"{field.attname!r}, or '{expression}__…'."
        )
    names, defers = query.deferred_loading
    is_loaded = (field.name in names or field.attname in names) is not defers
    yield field.attname, None if is_loaded else F(field.attname), field.null


if TYPE_CHECKING:
    M = TypeVar("M", bound=Model)
else:
    M = TypeVar("M")


@dataclass(frozen=True)
class Pages(Generic[M]):
    """A queryset, an order in which no two rows are equal, and the size of a page."""

    queryset: QuerySet[M]
    keys: tuple[Key, ...]
    size: int
    where: str

    @classmethod
    def of(
        cls, queryset: QuerySet[M] | Manager[M], cursor: str | Sequence[str] | None, size: Any, where: str
    ) -> Pages[M]:
        """Check the queryset and find its order.

        Raises
        ------
        TypeError
            It cannot be read in pages.
        """
        if isinstance(queryset, Manager):
            queryset = queryset.all()
        if problem := _problem(queryset):
            raise TypeError(f"{where}: {problem}")
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise TypeError(f"{where}: {size!r} is not a batch size. Give an integer of 1 or more.")
        try:
            keys = keys_of(queryset, cursor)
        except ValueError as error:
            raise TypeError(f"{where}: {error}") from None
        return cls(queryset, keys, size, where)

    def rows_after(self, cursor: Any) -> Iterator[tuple[M, Any, bool]]:
        """Yield (row, its cursor, whether it is the last) for each row after the cursor."""
        pages = self._pages(self._ordered(), lambda row: tuple(key.of(row) for key in self.keys), cursor)
        for page, has_more in pages:
            # A join may return a row more than once; in this order they are adjacent.
            rows = [next(same) for _, same in groupby(page, itemgetter(0))]
            for number, (values, row) in enumerate(rows, start=1):
                yield row, self._cursor(values), number == len(rows) and not has_more

    def batches_after(self, cursor: Any) -> Iterator[tuple[QuerySet[M], Any, bool]]:
        """Yield (queryset of one batch, the cursor of its last row, whether it is the last batch)."""
        rows = self._ordered().values_list(*(key.name for key in self.keys), "pk")
        for page, has_more in self._pages(rows, lambda row: tuple(map(_plain, row[:-1])), cursor):
            if page:
                # By primary keys, so that a row that is added or moves meanwhile is not in two batches.
                batch = self.queryset.filter(pk__in=[row[-1] for _, row in page])
                yield batch, self._cursor(page[-1][0]), not has_more

    def _pages(
        self, rows: QuerySet[Any, Any], values_of: Callable[[Any], tuple[Any, ...]], cursor: Any
    ) -> Iterator[tuple[list[tuple[tuple[Any, ...], Any]], bool]]:
        """Yield pages of (values of the keys, row), and whether there are more."""
        values = self._values(cursor)
        has_more = True
        while has_more:
            # One more than a page, which saves a query at the end.
            found = list(rows.filter(self._after(values))[: self.size + 1])
            has_more = len(found) > self.size
            page = [(values_of(row), row) for row in found[: self.size]]
            yield page, has_more
            values = page[-1][0] if page else None

    def count_after(self, cursor: Any) -> int:
        """Count the rows after the cursor."""
        return self._ordered().filter(self._after(self._values(cursor))).count()

    def _ordered(self) -> QuerySet[M]:
        annotations = {key.name: key.expression for key in self.keys if key.expression is not None}
        queryset = self.queryset.annotate(**annotations) if annotations else self.queryset
        ordered = queryset.order_by(*(key.order() for key in self.keys))
        # order_by() does not undo a reverse(), which the keys have taken into account.
        ordered.query.standard_ordering = True
        return ordered

    def _after(self, values: tuple[Any, ...] | None) -> Q:
        """Return the condition for the rows after these values, in the order of the keys."""
        if values is None:
            return Q()
        found = Q()
        equal = Q()
        for key, value in zip(self.keys, values, strict=True):
            behind = key.behind(value)
            if behind is not None:
                found |= equal & behind
            equal &= key.equal(value)
        if len(self.keys) > 1 and (bound := self.keys[0].not_before(values[0])) is not None:
            # Implied by the rest, but a database cannot enter an index by an OR.
            found = bound & found
        return found

    def _cursor(self, values: tuple[Any, ...]) -> Any:
        return values[0] if len(self.keys) == 1 else values

    def _values(self, cursor: Any) -> tuple[Any, ...] | None:
        if cursor is None:
            return None
        values = (cursor,) if len(self.keys) == 1 else cursor
        alone_is_tuple = len(self.keys) == 1 and isinstance(cursor, tuple)
        if not isinstance(values, tuple) or len(values) != len(self.keys) or alone_is_tuple:
            names = ", ".join(key.written for key in self.keys)
            raise InvalidStateError(
                f"{self.where}: the cursor {cursor!r} does not fit a loop along ({names}). The code may have "
                "changed since it was written. Start from the beginning: reattempt(rewind=True), or an "
                "operator's resume_at()."
            )
        return values


def _problem(queryset: Any) -> str | None:
    if not isinstance(queryset, QuerySet):
        return f"a queryset is needed, not a {type(queryset).__name__}. For a list use iterate()."
    query = queryset.query
    if query.is_sliced:
        return "the queryset is sliced, and cannot be narrowed to a page. Use max_iterations, or a filter."
    if query.combinator:
        return f"a queryset of {query.combinator}() cannot be narrowed to a page. Use Q(…) | Q(…)."
    if queryset._fields is not None:  # type: ignore[attr-defined]
        return "a queryset of values() has no instances. Leave it out; only() reads fewer columns."
    if query.distinct_fields:
        return "the queryset is distinct() on some columns. Use distinct() without names."
    return None


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
