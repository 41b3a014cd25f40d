"""Loops that are paused, canceled or recovered from outside stop at their next checkpoint."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from geneva_drive import StepExecution, step
from geneva_drive.testing import assert_state, run_next_step, run_to_end
from tests.execution.loops import CountingLoop, SparingLoop, at, rows
from tests.execution.support import Free, active, history, run, trace

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("cls", [CountingLoop, SparingLoop])
def test_a_pause_stops_the_loop_at_its_next_checkpoint_and_resume_repeats_nothing(
    cls: type[CountingLoop],
) -> None:
    workflow = cls.start()
    at(4, lambda *_: cls.objects.get(pk=workflow.pk).pause(by="Ada"))

    run_next_step(workflow)

    stopped_after = 5 if cls is CountingLoop else 8
    assert list(range(stopped_after)) == trace
    assert_state(workflow, "paused")
    successor = active(workflow)
    assert (successor.state, successor.on_hold, successor.cursor) == ("scheduled", True, stopped_after)
    assert rows(workflow)[0].outcome == "continued"

    workflow.resume(by="Ada")
    run_to_end(workflow)

    assert trace == [*range(10), "after"]
    assert_state(workflow, "finished")


def test_a_pause_withdrawn_in_time_has_no_effect() -> None:
    workflow = CountingLoop.start()

    def hesitate(*_: Any) -> None:
        CountingLoop.objects.get(pk=workflow.pk).pause()
        CountingLoop.objects.get(pk=workflow.pk).resume()

    at(4, hesitate)

    run_next_step(workflow)

    assert list(range(10)) == trace
    assert history(workflow)[0] == ("count", "completed", "success")


def test_a_pause_during_the_last_item_lets_the_step_complete() -> None:
    workflow = CountingLoop.start()
    at(9, lambda *_: CountingLoop.objects.get(pk=workflow.pk).pause())

    run_next_step(workflow)

    assert history(workflow) == [("count", "completed", "success"), ("after", "scheduled", None)]
    assert_state(workflow, "paused")


def test_a_cancel_stops_the_loop_at_its_next_checkpoint() -> None:
    workflow = CountingLoop.start()
    at(4, lambda *_: CountingLoop.objects.get(pk=workflow.pk).cancel())

    run_next_step(workflow)

    assert trace == [0, 1, 2, 3, 4]
    assert_state(workflow, "canceled")
    assert history(workflow) == [("count", "canceled", "canceled")]
    assert rows(workflow)[0].iterations == 5


def test_a_loop_recovered_by_another_process_stops_at_its_next_checkpoint_and_writes_nothing() -> None:
    workflow = CountingLoop.start()

    def take_away(*_: Any) -> None:
        StepExecution.objects.filter(workflow_id=workflow.pk).update(
            attempt_token=uuid.uuid4(), cursor="theirs"
        )

    at(4, take_away)

    run(workflow)

    assert trace == [0, 1, 2, 3, 4]
    row = active(workflow)
    assert (row.state, row.cursor, row.iterations) == ("in_progress", "theirs", 4)
    assert_state(workflow, "performing")


def test_no_stop_request_stays_on_a_step_that_ended() -> None:
    class Last(Free):
        @step
        def plain(self) -> None:
            Last.objects.get(pk=self.pk).pause()

    workflow = run_next_step(Last.start())

    assert_state(workflow, "finished")
    assert [row.on_hold for row in rows(workflow)] == [False]
