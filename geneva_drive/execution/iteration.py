"""The iteration that the body of a resumable step receives: a loop whose cursor survives interruptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from django.db.models import QuerySet

from geneva_drive.definition import flow
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.execution.cursor import Cursor
from geneva_drive.execution.pagination import Pages

if TYPE_CHECKING:
    from datetime import timedelta

    from django.db.models import Manager, Model

    M = TypeVar("M", bound=Model)
else:
    M = TypeVar("M")
T = TypeVar("T")


_PAGE_SIZE = 500
"""Rows that one query of ``iterate_queryset`` reads."""


class Iteration:
    """A loop with a cursor.

    One step has one cursor. Either move it with `set` or `advance`, or let one of `iterate`,
    `iterate_queryset` and `iterate_batches` do so. Each item that is done is counted and, as often as
    ``checkpoint_every`` says, written. When the loop has to stop (``max_iterations``, ``max_runtime``, a
    worker that shuts down, a workflow that was paused or canceled) the item just done is written and the
    execution ends there; another one continues from the cursor.

    Attributes
    ----------
    resumed
        Whether this execution continues an earlier one.
    """

    def __init__(
        self, cursor: Cursor, check_outside_of_blocks: Callable[[str], None], *, resumed: bool
    ) -> None:
        self._cursor = cursor
        self._where = cursor.where
        self._check_outside_of_blocks = check_outside_of_blocks
        self._loop: str | None = None
        self.resumed = resumed

    def __repr__(self) -> str:
        return f"<Iteration: {self._where}, cursor {self.cursor!r}, {self.iterations} done>"

    # -- the state of the loop

    @property
    def cursor(self) -> Any:
        """What was set last, in this execution or in an earlier one; None at the beginning."""
        return self._cursor.value

    @property
    def iterations(self) -> int:
        """Items done, in this execution and in those that it continues."""
        return self._cursor.iterations

    @property
    def advanced(self) -> bool:
        """Whether an item was done in this execution."""
        return self._cursor.done_here > 0

    @property
    def total(self) -> int | None:
        """The number of items in all, to show progress; None when nobody knows.

        May be set, and is written with the next checkpoint. ``iterate`` sets it by itself.
        """
        return self._cursor.total

    @total.setter
    def total(self, value: int | None) -> None:
        if value is not None and (not _is_integer(value) or value < 0):
            raise TypeError(f"{self._where}: total={value!r} is not a number of items.")
        self._cursor.set_total(value)

    # -- moving the cursor

    def set(self, value: Any) -> None:
        """Note that an item is done and that the loop continues from `value`. May end the execution.

        Parameters
        ----------
        value
            Of any type that a payload may have; at most ``MAX_CURSOR_BYTES`` as JSON.

        Raises
        ------
        PayloadError
            The value cannot be stored.
        InvalidStateError
            Called inside a ``transaction.atomic()`` block of the step, or inside ``iterate…()``.
        """
        self._check_no_loop_moves_it("set")
        self._finish_item(value)

    def advance(self) -> None:
        """Add one to a cursor that counts items: ``set(cursor + 1)``; None counts as zero.

        Raises
        ------
        TypeError
            The cursor is not an integer.
        """
        self._check_no_loop_moves_it("advance")
        self._finish_item(self._count("advance") + 1)

    def checkpoint(self) -> None:
        """Write the cursor now, whatever ``checkpoint_every`` says, and stop here if the loop has to.

        It counts no item as done. Inside ``iterate…()`` the current item would be repeated.
        """
        self._check_outside_of_blocks("checkpoint")
        self._cursor.checkpoint()

    def skip_to(self, value: Any, wait: timedelta | None = None) -> NoReturn:
        """End this execution; another one continues from `value`, after `wait`. Counts no item as done.

        Parameters
        ----------
        value
            As for `set`. For a queryset: the key after which to continue. For a sequence: the index at which.
        wait
            A timedelta from zero. Default: at once, behind other work that is due.
        """
        self._check_outside_of_blocks("skip_to")
        suspend = flow.Suspend(wait=wait, reason="skip_to")
        self._cursor.set(value)
        self._cursor.write()
        raise suspend

    # -- letting a loop move it

    def iterate(self, sequence: Sequence[T]) -> Iterator[T]:
        """Yield the items of a list, tuple, range or the like that are not done yet.

        The cursor is the number of items done, so the sequence must have the same items in the same order
        in each execution; it may grow at its end.
        """
        self._begin_loop("iterate")
        if not _is_sequence(sequence):
            raise TypeError(
                f"{self._where}: iterate() takes a sequence (a list, a tuple, a range), not a "
                f"{type(sequence).__name__}. For a queryset use iterate_queryset(); else list() or sorted()."
            )
        begin = self._count("iterate")
        self.total = len(sequence)
        return self._iterate(sequence, begin)

    def _iterate(self, sequence: Sequence[T], begin: int) -> Iterator[T]:
        for index in range(begin, len(sequence)):
            yield sequence[index]
            self._finish_item(index + 1, is_last=index + 1 == len(sequence))
        self._loop = _DONE

    def iterate_queryset(
        self,
        queryset: QuerySet[M] | Manager[M],
        cursor: str | Sequence[str] | None = None,
        *,
        total: bool = False,
        page_size: int = _PAGE_SIZE,
    ) -> Iterator[M]:
        """Yield the rows that are not done yet, read page by page, so that memory stays flat.

        Parameters
        ----------
        queryset
            Of model instances, not sliced. Each page is a query of its own, so that no transaction and no
            server-side cursor is open between items, and rows that are added ahead of the cursor are found.
        cursor
            Name or names of columns to order by, ``"-created_at"`` for descending ones. They need not be
            unique: ties are broken by the primary key. Default: the order of the queryset, if it has one,
            else the primary key. Do not order by what the loop changes.
        total
            Whether to count the rows, once, to show progress.
        page_size
            Rows per query.

        Raises
        ------
        TypeError
            The queryset cannot be read in pages; the message says why.
        InvalidStateError
            The cursor belongs to another loop.
        """
        self._begin_loop("iterate_queryset")
        pages = Pages.of(queryset, cursor, page_size, self._where)
        self._find_total(pages, total, 1)
        return self._iterate_pages(pages.rows_after(self.cursor))

    def iterate_batches(
        self,
        queryset: QuerySet[M] | Manager[M],
        size: int,
        cursor: str | Sequence[str] | None = None,
        *,
        total: bool = False,
    ) -> Iterator[QuerySet[M]]:
        """Yield querysets of `size` rows each, for ``update()``, ``delete()`` or anything else.

        A batch is the given queryset, narrowed to the keys of its rows: a row that stops matching before the
        batch is used is left alone. One batch counts as one item. For the parameters see `iterate_queryset`.
        """
        self._begin_loop("iterate_batches")
        pages = Pages.of(queryset, cursor, size, self._where)
        self._find_total(pages, total, size)
        return self._iterate_pages(pages.batches_after(self.cursor))

    def _iterate_pages(self, items: Iterator[tuple[T, Any, bool]]) -> Iterator[T]:
        for item, key, is_last in items:
            yield item
            self._finish_item(key, is_last=is_last)
        self._loop = _DONE

    # -- inside

    def _finish_item(self, value: Any, *, is_last: bool = False) -> None:
        self._check_outside_of_blocks("set")
        self._cursor.finish_item(value, is_last=is_last)

    def _check_no_loop_moves_it(self, how: str) -> None:
        if self._loop not in (None, _DONE):
            raise InvalidStateError(
                f"{self._where}: {how}() was called inside {self._loop}(), which moves the cursor by itself."
            )

    def _begin_loop(self, name: str) -> None:
        if self._loop is not None:
            raise InvalidStateError(
                f"{self._where}: {name}() is the second loop over one cursor. A resumable step can "
                "contain one loop: move this one to another step."
            )
        self._loop = name

    def _count(self, how: str) -> int:
        if self.cursor is None:
            return 0
        if not _is_integer(self.cursor) or self.cursor < 0:
            raise TypeError(
                f"{self._where}: {how}() counts items, and the cursor is {self.cursor!r}. Use set(value), "
                "or start from the beginning: reattempt(rewind=True), or resume_at()."
            )
        return int(self.cursor)

    def _find_total(self, pages: Pages[Any], wanted: bool, size: int) -> None:
        if wanted and self.total is None:
            rows = pages.count_after(self.cursor)
            self.total = self.iterations + -(-rows // size)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_sequence(value: Any) -> bool:
    # Not by class: numpy's arrays and Django's paginators are as good as lists. A queryset runs a query at each
    # index, and a mapping has no order to count by.
    if isinstance(value, QuerySet) or hasattr(value, "keys"):
        return False
    return hasattr(value, "__getitem__") and hasattr(value, "__len__")


_DONE = "done"
