"""Reading a queryset in a step over several executions, and the total number of items."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from geneva_drive import Iteration, resumable_step
from geneva_drive.testing import assert_cursor, run_next_step, run_to_end
from tests.execution.loops import rows
from tests.execution.support import Free, history, trace
from tests.testapp.models import Item

pytestmark = pytest.mark.django_db


@pytest.fixture
def items() -> list[Item]:
    return Item.objects.bulk_create([Item(code=f"{n:03}", rank=n % 3) for n in range(20)])


class SendingLoop(Free):
    @resumable_step(max_iterations=3)
    def send(self, iteration: Iteration) -> None:
        for item in iteration.iterate_queryset(Item.objects.all(), "-rank", total=True, page_size=5):
            trace.append(item.code)


def test_a_queryset_is_read_over_several_executions(items: list[Item]) -> None:
    workflow = run_to_end(SendingLoop.start())

    assert [item.code for item in Item.objects.order_by("-rank", "pk")] == trace
    chain = rows(workflow)
    assert [row.iterations for row in chain] == [3, 6, 9, 12, 15, 18, 20]
    assert {row.iterations_total for row in chain} == {20}
    last = Item.objects.order_by("-rank", "pk").last()
    assert last is not None
    assert_cursor(workflow, (last.rank, last.pk))


def test_the_total_is_counted_once(items: list[Item]) -> None:
    workflow = SendingLoop.start()
    with CaptureQueriesContext(connection) as queries:
        run_to_end(workflow)

    assert len([each for each in queries if "COUNT(" in each["sql"]]) == 1


def test_a_total_requested_half_way_includes_the_items_already_done(items: list[Item]) -> None:
    class Learning(Free):
        @resumable_step(max_iterations=4)
        def send(self, iteration: Iteration) -> None:
            for _ in iteration.iterate_queryset(Item.objects.all(), total=iteration.resumed):
                pass

    workflow = run_to_end(Learning.start())

    assert [row.iterations_total for row in rows(workflow)] == [None, 20, 20, 20, 20]


def test_batches_are_updated_in_bulk_over_several_executions(items: list[Item]) -> None:
    class Marking(Free):
        @resumable_step(max_iterations=2)
        def mark(self, iteration: Iteration) -> None:
            for batch in iteration.iterate_batches(Item.objects.order_by("rank"), 3, total=True):
                trace.append(batch.update(sent=True))

    workflow = run_to_end(Marking.start())

    assert trace == [3, 3, 3, 3, 3, 3, 2]
    assert not Item.objects.filter(sent=False).exists()
    assert (rows(workflow)[-1].iterations, rows(workflow)[-1].iterations_total) == (7, 7)
    assert [outcome for _, _, outcome in history(workflow)] == [
        "continued",
        "continued",
        "continued",
        "success",
    ]


def test_a_step_can_set_the_total() -> None:
    class Pages(Free):
        @resumable_step
        def fetch(self, iteration: Iteration) -> None:
            iteration.total = 40
            iteration.set("token 1")
            trace.append(rows(self)[0].iterations_total)

    run_to_end(Pages.start())

    assert trace == [40]


@pytest.mark.parametrize("value", [-1, 1.5, "7", True])
def test_a_total_must_be_a_number_of_items(value: Any) -> None:
    class Pages(Free):
        @resumable_step
        def fetch(self, iteration: Iteration) -> None:
            iteration.total = value

    with pytest.raises(TypeError, match="number of items"):
        run_next_step(Pages.start())
