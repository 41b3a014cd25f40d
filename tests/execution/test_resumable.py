"""Uninterrupted loops: every item is done and checkpointed in one execution."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from geneva_drive import Iteration, resumable_step
from geneva_drive.testing import run_next_step, run_to_end, travel
from tests.execution.loops import CountingLoop, SparingLoop, rows
from tests.execution.support import Free, history, trace

pytestmark = pytest.mark.django_db


def test_an_uninterrupted_loop_handles_every_item_in_one_execution() -> None:
    workflow = run_to_end(CountingLoop.start())

    assert trace == [*range(10), "after"]
    assert history(workflow) == [("count", "completed", "success"), ("after", "completed", "success")]
    count, after = rows(workflow)
    assert (count.cursor, count.iterations, count.iterations_total, count.continues_from_id) == (
        10,
        10,
        10,
        None,
    )
    assert (after.cursor, after.iterations, after.iterations_total) == (None, 0, None)


def test_a_loop_over_nothing_completes() -> None:
    class Empty(Free):
        @resumable_step
        def nothing(self, iteration: Iteration) -> None:
            assert not iteration.resumed
            assert not list(iteration.iterate([]))
            assert not iteration.advanced

    workflow = run_to_end(Empty.start())

    assert (rows(workflow)[0].cursor, rows(workflow)[0].iterations_total) == (None, 0)


def test_each_checkpoint_is_one_update_by_key_without_a_read() -> None:
    workflow = CountingLoop.start()
    with CaptureQueriesContext(connection) as queries:
        run_next_step(workflow)

    checkpoints = [each["sql"] for each in queries if "iterations_total = " in each["sql"]]
    assert len(checkpoints) == 10
    assert all(sql.startswith("UPDATE") for sql in checkpoints)
    first, last = (
        next(i for i, q in enumerate(queries) if q["sql"] == sql) for sql in (checkpoints[0], checkpoints[-1])
    )
    assert last - first == 9, "nothing but checkpoints happens between the first and the last"


def test_checkpoint_every_four_items_writes_a_quarter_as_often() -> None:
    with CaptureQueriesContext(connection) as queries:
        workflow = run_next_step(SparingLoop.start())

    # After 4 and 8, and the rest when the body has ended.
    assert len([each for each in queries if "iterations_total = " in each["sql"]]) == 3
    assert rows(workflow)[0].cursor == 10


def test_checkpoints_can_be_written_at_time_intervals() -> None:
    class Timed(CountingLoop):
        @resumable_step(checkpoint_every=timedelta(minutes=1))
        def count(self, iteration: Iteration) -> None:
            for item in iteration.iterate(range(10)):
                with travel(timedelta(seconds=40) * item):
                    trace.append(item)
                    continue

    with CaptureQueriesContext(connection) as queries:
        run_next_step(Timed.start())

    assert len([each for each in queries if "iterations_total = " in each["sql"]]) == 1
