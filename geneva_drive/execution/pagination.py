"""The order of a queryset as keys: what to read of a row, and which rows come behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.core.exceptions import FieldDoesNotExist
from django.db import connections
from django.db.models import F, Field, Manager, Model, OrderBy, Q, QuerySet

from geneva_drive.exceptions import InvalidStateError


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


if TYPE_CHECKING:
    M = TypeVar("M", bound=Model)
else:
    M = TypeVar("M")


@dataclass(frozen=True)
class Pages(Generic[M]):
    """A queryset in an order that tells any two rows apart, and where to cut it."""

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
            raise TypeError(f"{where}: {size!r} rows make no page. Give an integer from 1.")
        try:
            keys = keys_of(queryset, cursor)
        except ValueError as error:
            raise TypeError(f"{where}: {error}") from None
        return cls(queryset, keys, size, where)

    def rows_after(self, cursor: Any) -> Iterator[tuple[M, Any, bool]]:
        """Yield (row, its cursor, whether it is the last) for each row after the cursor."""
        ordered = self._ordered()
        values = self._values(cursor)
        while True:
            # One more than a page: who knows that there is more need not ask again to find that there is not.
            found = list(ordered.filter(self._after(values))[: self.size + 1])
            has_more = len(found) > self.size
            rows = _without_duplicates(
                (tuple(key.of(row) for key in self.keys), row) for row in found[: self.size]
            )
            for number, (key, row) in enumerate(rows, start=1):
                # Read before the row is handed out: its values may be changed.
                yield row, self._cursor(key), number == len(rows) and not has_more
            if not has_more:
                return
            values = rows[-1][0]

    def batches_after(self, cursor: Any) -> Iterator[tuple[QuerySet[M], Any, bool]]:
        """Yield (queryset of one batch, the cursor of its last row, whether it is the last batch)."""
        names = [key.name for key in self.keys]
        ordered = self._ordered().values_list(*names, "pk")
        values = self._values(cursor)
        while True:
            found = list(ordered.filter(self._after(values))[: self.size + 1])
            if not found:
                return
            has_more = len(found) > self.size
            found = found[: self.size]
            values = tuple(_plain(value) for value in found[-1][:-1])
            # By their keys: what is added in between, or moves, belongs to no batch twice.
            batch = self.queryset.filter(pk__in=[row[-1] for row in found])
            yield batch, self._cursor(values), not has_more
            if not has_more:
                return

    def count_after(self, cursor: Any) -> int:
        """Count the rows that are left."""
        return self._ordered().filter(self._after(self._values(cursor))).count()

    def _ordered(self) -> QuerySet[M]:
        annotations = {key.name: key.expression for key in self.keys if key.expression is not None}
        queryset = self.queryset.annotate(**annotations) if annotations else self.queryset
        ordered = queryset.order_by(*(key.order() for key in self.keys))
        # reverse() outlives order_by(), and the keys have taken it into account.
        ordered.query.standard_ordering = True
        return ordered

    def _after(self, values: tuple[Any, ...] | None) -> Q:
        """The rows behind these values, in the order of the keys."""
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
            # Implied by the rest, but a database finds its place in an index by this, and not by an OR.
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
                f"{self.where}: the cursor {cursor!r} is none of a loop along ({names}). The code may have "
                "changed since it was written. Start from the beginning: reattempt(rewind=True), or "
                "resume_at() by hand."
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


def _without_duplicates(rows: Iterator[tuple[Any, M]]) -> list[tuple[Any, M]]:
    """Leave out rows that a join gave more than once; in this order they stand side by side."""
    kept: list[tuple[Any, M]] = []
    for key, row in rows:
        if not kept or kept[-1][0] != key:
            kept.append((key, row))
    return kept


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
