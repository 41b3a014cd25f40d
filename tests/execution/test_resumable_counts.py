"""Progress resets the counts of crashes and reattempts; without progress the limits apply."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from geneva_drive import ExceptionPolicy, Iteration, Workflow, resumable_step
from geneva_drive.housekeeping import recover
from geneva_drive.testing import ProcessKilled, assert_cursor, assert_state, run_next_step, run_to_end, travel
from tests.execution.loops import CountingLoop, at, rows, stop
from tests.execution.support import active

pytestmark = pytest.mark.django_db


def kill_at(workflow: Workflow, number: int) -> None:
    def kill(*_: Any) -> None:
        raise ProcessKilled

    at(number, kill)
    with pytest.raises(ProcessKilled):
        run_next_step(workflow)
    # Each later than the one before, which started at the time to which the recovery before had travelled.
    with travel(timedelta(hours=2 * len(rows(workflow)))):
        recover("default")


# -- crashes


def test_crashes_with_progress_in_between_never_reach_the_limit() -> None:
    workflow = CountingLoop.start()

    for number in range(1, 9):
        kill_at(workflow, number)
        assert active(workflow).crashes == 1

    run_to_end(workflow)
    assert_state(workflow, "finished")


def test_an_item_that_kills_its_process_each_time_pauses_at_the_limit() -> None:
    workflow = CountingLoop.start()

    kill_at(workflow, 4)
    kill_at(workflow, 4)
    assert active(workflow).crashes == 2
    kill_at(workflow, 4)

    assert_state(workflow, "paused")
    assert_cursor(workflow, 4, iterations=4)


# -- reattempts


def test_progress_resets_the_count_of_reattempts_by_policy() -> None:
    class Flaky(CountingLoop):
        @resumable_step(on_exception=ExceptionPolicy("reattempt", max_reattempts=2))
        def count(self, iteration: Iteration) -> None:
            self.loop(iteration)

    workflow = Flaky.start()
    for number in (2, 3, 3, 5, 5, 8):
        at(number, stop)
        run_next_step(workflow)
    assert active(workflow).reattempts == 1

    run_to_end(workflow)
    assert_state(workflow, "finished")


def test_reattempts_at_the_same_item_end_at_the_limit() -> None:
    class Flaky(CountingLoop):
        @resumable_step(on_exception=ExceptionPolicy("reattempt", max_reattempts=2))
        def count(self, iteration: Iteration) -> None:
            self.loop(iteration)

    workflow = Flaky.start()
    for _ in range(3):
        at(4, stop)
        run_next_step(workflow, raise_errors=False)

    assert_state(workflow, "paused")
    assert_cursor(workflow, 4, iterations=4)


def test_recovery_takes_progress_into_account() -> None:
    class Flaky(CountingLoop):
        @resumable_step(on_exception=ExceptionPolicy("reattempt", max_reattempts=2))
        def count(self, iteration: Iteration) -> None:
            self.loop(iteration)

    workflow = Flaky.start()
    at(0, stop)
    run_next_step(workflow)
    assert active(workflow).reattempts == 1

    kill_at(workflow, 3)

    assert (active(workflow).reattempts, active(workflow).crashes) == (0, 1)
