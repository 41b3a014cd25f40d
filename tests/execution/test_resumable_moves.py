"""Moving the cursor, by a call or by a loop over items, and where it cannot move."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from django.db import transaction

from geneva_drive import InvalidStateError, Iteration, resumable_step
from geneva_drive.testing import assert_cursor, assert_state, run_next_step, run_to_end
from tests.execution.loops import CountingLoop, at, rows
from tests.execution.support import Free, trace
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db


def test_advance_counts_from_zero() -> None:
    class Advancing(Free):
        @resumable_step(max_iterations=2)
        def count(self, iteration: Iteration) -> None:
            for number in range(iteration.cursor or 0, 5):
                trace.append(number)
                iteration.advance()
                assert iteration.advanced

    workflow = run_to_end(Advancing.start())

    assert trace == [0, 1, 2, 3, 4]
    assert_cursor(workflow, 5, iterations=5)


@pytest.mark.parametrize("value", ["a", True, 1.0, -1, datetime.date(2024, 1, 1)])
def test_advance_is_for_integers_only(value: Any) -> None:
    class Advancing(Free):
        @resumable_step
        def count(self, iteration: Iteration) -> None:
            iteration.set(value)
            iteration.advance()

    with pytest.raises(TypeError, match=r"advance\(\) counts items"):
        run_next_step(Advancing.start())


def test_checkpoint_writes_at_once_and_counts_nothing() -> None:
    class Explicit(Free):
        @resumable_step(checkpoint_every=100)
        def count(self, iteration: Iteration) -> None:
            iteration.set("a")
            trace.append(rows(self)[0].cursor)
            iteration.checkpoint()
            trace.append(rows(self)[0].cursor)

    workflow = run_next_step(Explicit.start())

    assert trace == [None, "a"]
    assert_cursor(workflow, "a", iterations=1)


@pytest.mark.parametrize("call", ["set(1)", "advance()", "checkpoint()", "skip_to(1)"])
def test_the_cursor_cannot_move_inside_an_atomic_block(call: str) -> None:
    class Inside(Free):
        @resumable_step
        def count(self, iteration: Iteration) -> None:
            with transaction.atomic():
                eval(f"iteration.{call}")

    workflow = Inside.start()
    with pytest.raises(InvalidStateError, match="atomic"):
        run_next_step(workflow)

    assert_cursor(workflow, None)


def test_an_atomic_block_around_each_item_is_allowed() -> None:
    class Blocks(Free):
        @resumable_step
        def count(self, iteration: Iteration) -> None:
            for item in iteration.iterate("abc"):
                with transaction.atomic():
                    Order.objects.create(number=item)

    run_to_end(Blocks.start())

    assert Order.objects.count() == 3


@pytest.mark.parametrize("call", ["iteration.iterate([1])", "iteration.iterate_queryset(Order.objects)"])
def test_a_second_loop_over_one_cursor_is_refused(call: str) -> None:
    class Twice(Free):
        @resumable_step
        def count(self, iteration: Iteration) -> None:
            list(iteration.iterate([1, 2]))
            eval(call, {"iteration": iteration, "Order": Order})

    with pytest.raises(InvalidStateError, match="can contain one loop"):
        run_next_step(Twice.start())


@pytest.mark.parametrize("call", ["set(5)", "advance()"])
def test_the_cursor_of_an_iterate_loop_cannot_be_set(call: str) -> None:
    workflow = CountingLoop.start()
    at(3, lambda _, iteration: eval(f"iteration.{call}", {"iteration": iteration}))

    with pytest.raises(InvalidStateError, match=r"inside iterate\(\)"):
        run_next_step(workflow)


@pytest.mark.parametrize(
    "given",
    [{1: 2}, {1, 2}, (n for n in [1]), Order.objects.all, Order.objects],
    ids=["dict", "set", "generator", "method", "manager"],
)
def test_unordered_or_endless_iterables_are_refused(given: Any) -> None:
    class Wrong(Free):
        @resumable_step
        def count(self, iteration: Iteration) -> None:
            list(iteration.iterate(given))

    with pytest.raises(TypeError, match="takes a sequence"):
        run_next_step(Wrong.start())


def test_a_break_leaves_the_current_item_undone() -> None:
    class Breaking(Free):
        @resumable_step
        def count(self, iteration: Iteration) -> None:
            for item in iteration.iterate(range(5)):
                if item == 3:
                    break

    workflow = run_to_end(Breaking.start())

    assert_cursor(workflow, 3, iterations=3)
    assert_state(workflow, "finished")
