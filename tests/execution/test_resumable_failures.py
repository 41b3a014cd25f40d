"""Where a loop continues after a failure, a crash or an operator action, and what it repeats."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from geneva_drive.housekeeping import recover
from geneva_drive.testing import (
    ProcessKilled,
    assert_cursor,
    assert_state,
    assert_step,
    run_iterations,
    run_next_step,
    run_to_end,
    travel,
)
from tests.execution.loops import CountingLoop, SparingLoop, at, rows, stop
from tests.execution.support import active, history, trace

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("cls", [CountingLoop, SparingLoop])
def test_a_failure_keeps_the_progress_and_resume_continues(cls: type[CountingLoop]) -> None:
    workflow = cls.start()
    at(6, stop)

    run_next_step(workflow, raise_errors=False)

    assert_state(workflow, "paused")
    assert_step(workflow, "count", "failed", "failed")
    assert_cursor(workflow, 6, iterations=6)

    workflow.resume()
    assert_cursor(workflow, 6, iterations=6)
    assert active(workflow).continues_from_id == rows(workflow)[0].pk
    run_to_end(workflow)

    assert trace == [0, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9, "after"]


def test_a_failure_at_the_first_item_after_a_resume_keeps_the_saved_cursor() -> None:
    workflow = CountingLoop.start()
    at(6, stop)
    run_next_step(workflow, raise_errors=False)

    for _ in range(2):
        at(6, stop)
        workflow.resume()
        run_next_step(workflow, raise_errors=False)
        assert_cursor(workflow, 6, iterations=6)

    workflow.resume()
    run_to_end(workflow)
    assert trace == [*range(6), 6, 6, 6, *range(6, 10), "after"]


def test_a_failure_before_the_first_item_starts_from_the_beginning_and_is_no_continuation() -> None:
    workflow = CountingLoop.start()
    at(0, stop)
    run_next_step(workflow, raise_errors=False)

    workflow.resume()

    row = active(workflow)
    assert (row.cursor, row.continues_from_id, row.iterations) == (None, None, 0)


def test_reattempt_continues_at_the_cursor() -> None:
    workflow = CountingLoop.start()
    at(6, lambda body, _: body.reattempt(wait=timedelta(hours=1)))

    run_to_end(workflow)

    assert trace == [*range(6), 6, *range(6, 10), "after"]
    assert [outcome for _, _, outcome in history(workflow)] == ["reattempted", "success", "success"]


def test_reattempt_with_rewind_starts_over() -> None:
    workflow = CountingLoop.start()
    at(6, lambda body, _: body.reattempt(rewind=True))

    run_to_end(workflow)

    assert trace == [*range(7), *range(10), "after"]
    again = rows(workflow)[1]
    assert (again.continues_from_id, again.iterations) == (None, 10)


def test_a_pause_by_the_step_itself_continues_at_the_cursor() -> None:
    workflow = CountingLoop.start()
    at(6, lambda body, _: body.pause())
    run_next_step(workflow)
    assert_step(workflow, "count", "canceled", "workflow_paused")

    workflow.resume()
    run_to_end(workflow)

    assert trace == [*range(6), 6, *range(6, 10), "after"]


def test_resume_at_starts_from_the_beginning() -> None:
    workflow = run_iterations(CountingLoop.start(), 6)
    workflow.pause()

    workflow.resume_at("count")

    assert_cursor(workflow, None, iterations=0)
    assert active(workflow).continues_from_id is None
    run_to_end(workflow)
    assert trace == [*range(6), *range(10), "after"]


def test_skip_skips_the_remaining_items() -> None:
    workflow = run_iterations(CountingLoop.start(), 6)

    workflow.skip()
    run_to_end(workflow)

    assert trace == [*range(6), "after"]


@pytest.mark.parametrize(("cls", "repeated"), [(CountingLoop, 6), (SparingLoop, 4)])
def test_after_a_kill_only_items_since_the_last_checkpoint_are_repeated(
    cls: type[CountingLoop], repeated: int
) -> None:
    workflow = cls.start()

    def kill(*_: Any) -> None:
        raise ProcessKilled

    at(6, kill)
    with pytest.raises(ProcessKilled):
        run_next_step(workflow)
    assert_cursor(workflow, repeated, iterations=repeated)

    with travel(timedelta(hours=2)):
        recover("default")
        assert_cursor(workflow, repeated, iterations=repeated)
        run_to_end(workflow)

    assert trace == [*range(7), *range(repeated, 10), "after"]
    assert [outcome for _, _, outcome in history(workflow)] == ["recovered", "success", "success"]


def test_a_body_that_ends_its_process_keeps_its_progress() -> None:
    workflow = SparingLoop.start()

    def leave(*_: Any) -> None:
        raise SystemExit(1)

    at(6, leave)
    with pytest.raises(SystemExit):
        run_next_step(workflow)

    assert_cursor(workflow, 6, iterations=6)
    assert active(workflow).crashes == 1
