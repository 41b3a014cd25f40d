"""Loops that defer their remaining items: suspend() and skip_to()."""

from __future__ import annotations

from datetime import timedelta

import pytest

from geneva_drive import InvalidStateError, Iteration, resumable_step, step
from geneva_drive.housekeeping import recover
from geneva_drive.testing import ProcessKilled, assert_cursor, run_next_step, run_to_end, travel
from tests.execution.loops import CountingLoop, at, rows
from tests.execution.support import Free, active, trace

pytestmark = pytest.mark.django_db


class PollingLoop(Free):
    @resumable_step
    def poll(self, iteration: Iteration) -> None:
        if not iteration.resumed:
            trace.append("ordered")
            self.suspend(wait=timedelta(minutes=10))
        trace.append("fetched")


def test_suspend_continues_after_the_wait_even_without_a_cursor() -> None:
    workflow = run_next_step(PollingLoop.start())

    successor = active(workflow)
    assert (successor.scheduled_for - rows(workflow)[0].finished_at) == timedelta(minutes=10)
    assert rows(workflow)[0].outcome == "continued"
    run_to_end(workflow)
    assert trace == ["ordered", "fetched"]


def test_a_suspended_step_still_counts_as_resumed_after_a_crash() -> None:
    class Dying(Free):
        @resumable_step
        def poll(self, iteration: Iteration) -> None:
            trace.append(iteration.resumed)
            if not iteration.resumed:
                self.suspend()
            if len(trace) < 3:
                raise ProcessKilled

    workflow = run_next_step(Dying.start())
    with pytest.raises(ProcessKilled):
        run_next_step(workflow)
    with travel(timedelta(hours=2)):
        recover("default")
        run_to_end(workflow)

    assert trace == [False, True, True]


def test_skip_to_continues_at_the_given_cursor_after_the_wait() -> None:
    workflow = CountingLoop.start()
    at(3, lambda _, iteration: iteration.skip_to(8, wait=timedelta(days=1)))

    run_next_step(workflow)

    assert_cursor(workflow, 8, iterations=3)
    assert active(workflow).scheduled_for > rows(workflow)[0].finished_at + timedelta(hours=23)
    run_to_end(workflow)
    assert trace == [0, 1, 2, 3, 8, 9, "after"]


def test_a_negative_wait_is_refused_before_anything_is_written() -> None:
    workflow = CountingLoop.start()
    at(3, lambda _, iteration: iteration.skip_to(8, wait=timedelta(days=-1)))

    with pytest.raises(ValueError, match="negative"):
        run_next_step(workflow)

    assert_cursor(workflow, 3)


def test_suspend_is_refused_in_plain_steps() -> None:
    class Plain(Free):
        @step
        def wait(self) -> None:
            self.suspend()

    with pytest.raises(InvalidStateError, match="resumable"):
        run_next_step(Plain.start())
