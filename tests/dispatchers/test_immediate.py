"""The dispatcher that runs what is due at once, in the thread that committed it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction
from django.test import override_settings

from geneva_drive import Workflow, clock, step
from geneva_drive.housekeeping import redispatch
from geneva_drive.models.records import Process
from geneva_drive.testing import assert_state, travel
from tests.execution.support import Free, active, history, own_classes_forgotten, trace
from tests.testapp.models import Effect, Order

pytestmark = pytest.mark.django_db(transaction=True)

IMMEDIATE = ("geneva_drive.dispatchers.Immediate", {"heartbeat": False})


@pytest.fixture(autouse=True)
def _immediate() -> Iterator[None]:
    trace.clear()
    with own_classes_forgotten(), override_settings(GENEVA_DRIVE={"DISPATCHER": IMMEDIATE}):
        yield


class AtOnce(Free):
    @step
    def one(self) -> None:
        trace.append("one")

    @step
    def two(self) -> None:
        trace.append("two")

    @step(wait=timedelta(days=1))
    def later(self) -> None:
        trace.append("later")


def test_due_executions_run_with_the_commit_and_waits_stay() -> None:
    with transaction.atomic():
        workflow = AtOnce.start()
        assert trace == []

    assert trace == ["one", "two"]
    assert active(workflow).step_name == "later"
    assert_state(workflow, "ready")


def test_a_wait_is_run_by_housekeeping_after_its_time() -> None:
    workflow = AtOnce.start()

    with travel(timedelta(days=1, hours=1)):
        assert redispatch("default").redispatched == 1

    assert trace == ["one", "two", "later"]
    assert_state(workflow, "finished")


def depth() -> int:
    """How many calls deep this is."""
    return len(list(traceback.walk_stack(None)))


@pytest.mark.only_on("sqlite", "postgresql", reason="it takes long elsewhere, and the code is the same")
@pytest.mark.parametrize("number", [500])
def test_a_long_chain_without_waits_does_not_recurse(number: int, request: pytest.FixtureRequest) -> None:
    class Deep(Free):
        steps_without_waits = step.series(lambda self: depths.append(depth()), waits=number * [timedelta(0)])

    depths: list[int] = []
    # So that fewer steps than the usual thousand are more than may lie on each other.
    request.addfinalizer(partial(sys.setrecursionlimit, sys.getrecursionlimit()))
    sys.setrecursionlimit(number - 1)

    workflow = Deep.start()

    assert_state(workflow, "finished")
    assert len(depths) == number > sys.getrecursionlimit()
    assert max(depths[2:]) == min(depths[2:])


def test_a_chain_that_goes_through_the_dispatcher_each_time_does_not_recurse() -> None:
    class DeepToo(Free):
        steps_without_waits = step.series(lambda self: depths.append(depth()), waits=40 * [timedelta(0)])

    depths: list[int] = []

    with override_settings(GENEVA_DRIVE={"DISPATCHER": IMMEDIATE, "INLINE_CONTINUATION": False}):
        workflow = DeepToo.start()

    assert_state(workflow, "finished")
    assert max(depths) - min(depths) < 10 < len(depths)


def test_a_workflow_started_by_a_step_runs_after_it() -> None:
    class Outer(Free):
        @step
        def outer(self) -> None:
            AtOnce.start()
            trace.append("outer goes on")

        @step
        def outer_two(self) -> None:
            trace.append("outer two")

    workflow = Outer.start()

    assert trace == ["outer goes on", "outer two", "one", "two"]
    assert_state(workflow, "finished")


def test_an_error_is_recorded_and_reaches_neither_the_caller_nor_later_executions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class StartsAndBreaks(Free):
        @step
        def breaks(self) -> None:
            AtOnce.start()
            raise ValueError("no")

    workflow = StartsAndBreaks.start()

    assert_state(workflow, "paused")
    assert history(workflow) == [("breaks", "failed", "failed")]
    assert trace == ["one", "two"]
    assert "no" in caplog.text


def test_a_rolled_back_start_runs_nothing() -> None:
    with transaction.atomic():
        AtOnce.start()
        transaction.set_rollback(True)

    assert trace == []
    assert Workflow.objects.count() == 0


def test_workflows_started_together_run_in_sequence() -> None:
    class Writes(Free):
        @step
        def one(self) -> None:
            Effect.objects.create(workflow=str(self.pk), step="one")

    created, _ = Writes.start_many([Order.objects.create() for _ in range(4)])

    assert [effect.workflow for effect in Effect.objects.order_by("pk")] == [str(row.pk) for row in created]
    assert Writes.objects.finished().count() == 4


def test_an_operator_action_runs_what_it_schedules() -> None:
    workflow = AtOnce.start()

    workflow.pause()
    workflow.resume_at("later")

    assert trace == ["one", "two", "later"]
    assert_state(workflow, "finished")


def test_without_a_heartbeat_no_process_row_is_written_and_rows_name_none() -> None:
    workflow = AtOnce.start()

    assert Process.objects.count() == 0
    assert {row.process_id for row in workflow.executions.all()} == {None}


def test_with_a_heartbeat_rows_name_the_process() -> None:
    with override_settings(GENEVA_DRIVE={"DISPATCHER": "geneva_drive.dispatchers.Immediate"}):
        workflow = AtOnce.start()

    process = Process.objects.get()
    assert process.kind == "immediate"
    assert clock.utc(process.heartbeat_at) <= clock.now("default")
    assert [row.process_id for row in workflow.executions.order_by("pk")] == [process.pk, process.pk, None]
