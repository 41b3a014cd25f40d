"""Reading a queryset page by page along its order, each page from where the one before ended.

A page is a query of its own: no transaction, no server-side cursor and no long list lives between two items.
Where it begins is told by the values of the row before ("keyset"), with the primary key to break ties, so
that nothing is skipped and nothing comes twice, whatever is added or deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.db.models import Manager, Model, Q, QuerySet

from geneva_drive.exceptions import InvalidStateError
from geneva_drive.execution.ordering import Key, keys_of

if TYPE_CHECKING:
    M = TypeVar("M", bound=Model)
else:
    M = TypeVar("M")

__all__ = ["Pages"]


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
