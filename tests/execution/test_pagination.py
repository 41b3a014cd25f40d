"""Reading a queryset in pages: every row once, in order, by any column."""

from __future__ import annotations

import datetime
import itertools
import random
import tracemalloc
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.db.models import Count, F, Q, QuerySet
from django.db.models.functions import Lower
from django.test.utils import CaptureQueriesContext

from geneva_drive import InvalidStateError
from geneva_drive.execution.pagination import Pages
from geneva_drive.serialization import dumps, loads
from tests.testapp.models import Effect, Item, Order, Pair, Ticket

pytestmark = pytest.mark.django_db


@pytest.fixture
def items() -> list[Item]:
    """Sixty rows with ties, nulls, and upper and lower case, in random order."""
    chance = random.Random(7)
    orders = [Order.objects.create(number=name) for name in ("b", "a", "B", "a")]
    moment = datetime.datetime(2024, 10, 27, 1, 0, 0, 123456, tzinfo=datetime.UTC)
    rows = [
        Item(
            code=f"{number:03}",
            order=chance.choice([None, *orders]),
            label=chance.choice([None, "", "abc", "ABC", "Abc ", "é", "z", "日本"]),
            rank=chance.choice([None, -1, 0, 0, 1, 2**31 - 1]),
            price=chance.choice([Decimal("0.10"), Decimal("0.30"), Decimal("12.34"), Decimal(-5)]),
            made_at=chance.choice(
                [
                    None,
                    moment,
                    moment + datetime.timedelta(microseconds=1),
                    moment - datetime.timedelta(days=400),
                ]
            ),
            sent=chance.choice([True, False]),
        )
        for number in range(60)
    ]
    chance.shuffle(rows)
    Item.objects.bulk_create(rows)
    return list(Item.objects.all())


def walk(queryset: QuerySet[Any], cursor: Any = None, *, size: int = 7, stop_every: int = 5) -> list[Any]:
    """Return the rows as seen by a loop that is interrupted repeatedly, with cursors stored as JSON."""
    rows: list[Any] = []
    stored = None
    while True:
        pages = Pages.of(queryset, cursor, size, "here")
        seen = list(itertools.islice(pages.rows_after(stored), stop_every))
        if not seen:
            return rows
        for row, key, _ in seen:
            rows.append(row)
            stored = loads(dumps(key), strict=True)


ORDERS: dict[str, Any] = {
    "none": [],
    "the key": ["pk"],
    "the key, descending": ["-pk"],
    "a unique column": ["code"],
    "text with ties and nulls": ["label"],
    "the same, descending": ["-label"],
    "numbers with ties and nulls": ["rank"],
    "numbers, descending": ["-rank"],
    "nulls first": [F("rank").asc(nulls_first=True)],
    "nulls last": [F("rank").asc(nulls_last=True)],
    "descending, nulls first": [F("rank").desc(nulls_first=True)],
    "descending, nulls last": [F("rank").desc(nulls_last=True)],
    "several columns": ["-label", "rank", "-made_at"],
    "times": ["made_at"],
    "decimals": ["-price", "made_at"],
    "booleans": ["-sent", "rank"],
    "a foreign key": ["order_id"],
    "a column of another table": ["order__number"],
    "a column of another table, descending": ["-order__number", "label"],
    "an expression": [Lower("label")],
    "a descending expression": [Lower("label").desc(nulls_last=True), "-rank"],
    "something after the key": ["-pk", "label"],
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_every_row_is_read_once_in_the_order_of_the_database(items: list[Item], order: list[Any]) -> None:
    queryset = Item.objects.order_by(*order)

    rows = walk(queryset)

    # With ties in the order two runs may differ, so the key decides here.
    assert [row.pk for row in rows] == [row.pk for row in queryset.order_by(*order, "pk")]


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_the_page_size_makes_no_difference(items: list[Item], order: list[Any]) -> None:
    queryset = Item.objects.order_by(*order)
    expected = [row.pk for row in queryset.order_by(*order, "pk")]

    for size, stop_every in [(1, 1), (60, 7), (59, 100), (1000, 1000)]:
        rows = walk(queryset, size=size, stop_every=stop_every)

        assert [row.pk for row in rows] == expected, (size, stop_every)


@pytest.mark.parametrize(
    "cursor", ["label", "-rank", ["made_at", "-price"], ("-code",), "pk", "-order__number"]
)
def test_named_columns_replace_the_order_of_the_queryset(items: list[Item], cursor: Any) -> None:
    names = [cursor] if isinstance(cursor, str) else list(cursor)

    rows = walk(Item.objects.order_by("rank", "code"), cursor)

    assert [row.pk for row in rows] == [row.pk for row in Item.objects.order_by(*names, "pk")]


def test_a_reversed_queryset_is_read_backwards(items: list[Item]) -> None:
    order: list[Any] = [F("rank").asc(nulls_first=True), "-label", "pk"]

    rows = walk(Item.objects.order_by(*order).reverse())

    assert [row.pk for row in rows] == [row.pk for row in Item.objects.order_by(*order).reverse()]


def test_filters_related_rows_annotations_and_prefetching_are_kept(items: list[Item]) -> None:
    queryset = (
        Order.objects.filter(items__isnull=False)
        .annotate(count=Count("items"))
        .order_by("-count")
        .prefetch_related("items")
    )

    rows = walk(queryset, size=2, stop_every=1)

    assert [(row.pk, row.count) for row in rows] == [
        (row.pk, row.count) for row in queryset.order_by("-count", "pk")
    ]
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert sum(len(row.items.all()) for row in rows) == Item.objects.filter(order__isnull=False).count()
    assert len(queries) == 1, "the items were prefetched"


def test_a_row_that_a_join_returns_several_times_is_read_once(items: list[Item]) -> None:
    queryset = Order.objects.filter(Q(items__isnull=False)).order_by("number")

    rows = walk(queryset, size=3, stop_every=2)

    assert queryset.count() > len(rows)
    assert [row.pk for row in rows] == list(
        queryset.order_by("number", "pk").distinct().values_list("pk", flat=True)
    )


def test_deferred_columns_cause_no_extra_queries(items: list[Item]) -> None:
    with CaptureQueriesContext(connection) as queries:
        rows = walk(Item.objects.only("code").order_by("-rank", "label"), size=100, stop_every=100)

    assert len(rows) == 60
    # The rows, and a query for more.
    assert len(queries) == 2


def test_a_page_needs_one_query(items: list[Item]) -> None:
    pages = Pages.of(Item.objects.order_by("rank"), None, 20, "here")

    with CaptureQueriesContext(connection) as queries:
        assert len(list(pages.rows_after(None))) == 60

    assert len(queries) == 3


def test_the_last_row_is_recognized(items: list[Item]) -> None:
    for size in (1, 20, 59, 60, 61):
        pages = Pages.of(Item.objects.order_by("rank"), None, size, "here")

        assert [is_last for _, _, is_last in pages.rows_after(None)] == 59 * [False] + [True]


def test_changes_to_a_row_in_the_body_do_not_move_the_cursor(items: list[Item]) -> None:
    seen = []
    for row, key, _ in Pages.of(Item.objects.order_by("code"), None, 7, "here").rows_after(None):
        seen.append(key)
        row.code = "changed"

    assert seen == [f"{number:03}" for number in range(60)]


def test_concurrent_inserts_and_deletes_do_not_skip_or_repeat_other_rows(items: list[Item]) -> None:
    expected = [row.pk for row in Item.objects.order_by("rank", "pk")]
    gone = expected[40]
    seen = []
    for number, (row, _, _) in enumerate(
        Pages.of(Item.objects.order_by("rank"), None, 7, "here").rows_after(None)
    ):
        seen.append(row.pk)
        if number == 9:
            Item.objects.filter(pk__in=[expected[2], expected[9], gone]).delete()
            Item.objects.create(code="before", rank=row.rank, pk=-1)

    assert seen == [pk for pk in expected if pk != gone]


def test_a_composite_key_distinguishes_rows() -> None:
    Pair.objects.bulk_create([Pair(left=number % 4, right=str(number)) for number in range(20)])

    assert walk(Pair.objects.all(), size=3) == list(Pair.objects.order_by("left", "right"))
    assert walk(Pair.objects.order_by("-right"), size=3) == list(Pair.objects.order_by("-right"))


def test_uuid_keys_are_read_in_the_order_of_the_database() -> None:
    Ticket.objects.bulk_create([Ticket() for _ in range(30)])

    assert walk(Ticket.objects.all()) == list(Ticket.objects.order_by("pk"))


def test_a_manager_works_like_a_queryset(items: list[Item]) -> None:
    pages = Pages.of(Item.objects, None, 100, "here")

    assert len(list(pages.rows_after(None))) == 60


def test_batches_contain_every_row_once_and_can_be_updated_in_bulk(items: list[Item]) -> None:
    pages = Pages.of(Item.objects.filter(sent=False).order_by("rank"), None, 7, "here")
    unsent = Item.objects.filter(sent=False).count()

    sizes = [batch.update(sent=True) for batch, _, _ in pages.batches_after(None)]

    assert sum(sizes) == unsent
    assert set(sizes[:-1]) == {7}
    assert not Item.objects.filter(sent=False).exists()


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_batches_follow_any_order_and_continue_at_their_cursor(items: list[Item], order: list[Any]) -> None:
    queryset = Item.objects.order_by(*order)
    seen: list[int] = []
    stored = None
    while True:
        pages = Pages.of(queryset, None, 7, "here")
        found = next(pages.batches_after(stored), None)
        if found is None:
            break
        batch, key, _ = found
        seen += [row.pk for row in batch.order_by(*order, "pk")]
        stored = loads(dumps(key), strict=True)

    assert seen == [row.pk for row in queryset.order_by(*order, "pk")]


def test_batches_can_be_deleted(items: list[Item]) -> None:
    for batch, _, _ in Pages.of(Item.objects.order_by("-label"), None, 7, "here").batches_after(None):
        batch.delete()

    assert not Item.objects.exists()


def test_a_row_that_no_longer_matches_when_its_batch_is_used_is_left_alone(items: list[Item]) -> None:
    Item.objects.update(sent=False)
    batches = Pages.of(Item.objects.filter(sent=False), None, 10, "here").batches_after(None)

    batch, _, _ = next(batches)
    withdrawn = batch.first()
    assert withdrawn is not None
    Item.objects.filter(pk=withdrawn.pk).update(sent=True)

    assert batch.update(label="bulk") == 9


@pytest.mark.parametrize("order", [[], ["rank"], ["-label", "made_at"]])
def test_the_remaining_rows_are_counted(items: list[Item], order: list[str]) -> None:
    pages = Pages.of(Item.objects.order_by(*order), None, 7, "here")
    keys = [key for _, key, _ in pages.rows_after(None)]

    assert [pages.count_after(key) for key in (None, keys[0], keys[29], keys[-1])] == [60, 59, 30, 0]


@pytest.mark.parametrize(
    ("queryset", "words"),
    [
        (lambda: Item.objects.all()[:5], "sliced"),
        (lambda: Item.objects.values("code"), "values()"),
        (lambda: Item.objects.values_list("code"), "values()"),
        (lambda: Item.objects.order_by("?"), "random order"),
        (lambda: Item.objects.union(Item.objects.all()), "union()"),
        (lambda: Item.objects.order_by("order__items"), None),
        (lambda: [1, 2, 3], "iterate()"),
        (lambda: Item.objects.extra(order_by=["code"]), "extra()"),
    ],
)
def test_a_queryset_that_cannot_be_paged_is_refused_with_a_hint(queryset: Any, words: str | None) -> None:
    if words is None:
        Pages.of(queryset(), None, 7, "here")
        return
    with pytest.raises(TypeError) as refused:
        Pages.of(queryset(), None, 7, "here")
    assert words in str(refused.value)
    assert str(refused.value).startswith("here: ")


@pytest.mark.parametrize(
    ("cursor", "words"),
    [("nothing", "no column 'nothing'"), ("items", "is no column"), ([1], "not a column name")],
)
def test_unknown_columns_are_refused(cursor: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        Pages.of(Order.objects.all(), cursor, 7, "here")


@pytest.mark.parametrize("size", [0, -1, True, "7", 1.5, None])
def test_a_page_has_at_least_one_row(size: Any) -> None:
    with pytest.raises(TypeError, match="is not a batch size"):
        Pages.of(Order.objects.all(), None, size, "here")


@pytest.mark.parametrize("cursor", [("a", 1, 2), "a", 5, ["a", 1]])
def test_the_cursor_of_another_loop_is_refused(cursor: Any) -> None:
    pages = Pages.of(Item.objects.order_by("rank"), None, 7, "here")

    with pytest.raises(InvalidStateError, match="does not fit a loop along"):
        next(pages.rows_after(cursor))


def test_memory_stays_flat_over_many_rows() -> None:
    Effect.objects.bulk_create(
        [Effect(workflow=str(n), step="x" * 100) for n in range(6000)], batch_size=2000
    )

    def peak(rows: int) -> int:
        pages = Pages.of(Effect.objects.all(), None, 100, "here")
        tracemalloc.start()
        try:
            assert sum(1 for _ in itertools.islice(pages.rows_after(None), rows)) == rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(200)  # what is imported and cached on the way is not counted
    assert peak(6000) < 5 * peak(300), "twenty times the rows"


@pytest.mark.only_on("postgresql", reason="it tells which cursors are open")
def test_no_server_side_cursor_is_open_between_two_rows(items: list[Item]) -> None:
    for _ in Pages.of(Item.objects.order_by("rank"), None, 7, "here").rows_after(None):
        with connection.cursor() as cursor:
            # The one without a name is the portal of this query, if parameters are bound on the server.
            cursor.execute("SELECT count(*) FROM pg_cursors WHERE name NOT LIKE '\\_%%' AND name <> ''")
            assert cursor.fetchone() == (0,)
