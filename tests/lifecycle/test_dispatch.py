"""Executions are dispatched after the commit, and only then."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from geneva_drive import StepExecution, Workflow, clock, step
from geneva_drive.dispatchers import Dispatcher
from geneva_drive.exceptions import DispatcherError
from geneva_drive.execution.executor import execute
from geneva_drive.lifecycle import dispatch
from geneva_drive.testing import assert_state, run_next_step
from tests.execution.support import Free, active, everything, trace
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db(transaction=True)

HERE = f"{__name__}.Noting"


class Noting(Dispatcher):
    """Records what it has to dispatch, and whether the row is visible at that time."""

    supports_delays = True

    def __init__(self, fails: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.fails = fails

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        if self.fails:
            raise ConnectionError("no broker")
        trace.append((StepExecution.objects.get(pk=execution_id).step_name, options))
        return f"job {execution_id}"


@pytest.fixture(autouse=True)
def _noting() -> Iterator[None]:
    with override_settings(GENEVA_DRIVE={"DISPATCHER": HERE}):
        yield


class DispatchedCarried(Free):
    @step
    def one(self) -> None:
        pass

    @step(wait=timedelta(hours=1), queue="slow", priority=3)
    def two(self) -> None:
        pass


def test_a_start_is_dispatched_once_after_its_commit() -> None:
    with transaction.atomic():
        with transaction.atomic():
            workflow = DispatchedCarried.start()
            assert trace == []
        assert trace == []

    (name, options), *others = trace
    assert (name, others) == ("one", [])
    row = active(workflow)
    assert options == {
        "queue": "default",
        "priority": 0,
        "scheduled_for": clock.utc(row.scheduled_for),
        "delay": 0.0,
        "using": "default",
    }
    assert (row.job_id, row.dispatched_at is not None) == (f"job {row.pk}", True)


def test_a_start_that_is_rolled_back_is_never_dispatched() -> None:
    for outermost in (True, False):
        with transaction.atomic():
            with transaction.atomic():
                DispatchedCarried.start()
                transaction.set_rollback(not outermost)
            transaction.set_rollback(outermost)

    assert trace == []
    assert Workflow.objects.count() == 0


def test_a_start_within_on_commit_is_dispatched() -> None:
    with transaction.atomic():
        transaction.on_commit(lambda: trace.append(DispatchedCarried.start().pk))

    assert [entry[0] for entry in trace if isinstance(entry, tuple)] == ["one"]


def test_start_many_dispatches_every_workflow() -> None:
    DispatchedCarried.start_many([Order.objects.create() for _ in range(3)])

    assert [name for name, _ in trace] == ["one", "one", "one"]


def test_the_next_step_is_dispatched_with_its_time_queue_and_priority() -> None:
    workflow = DispatchedCarried.start()
    trace.clear()

    run_next_step(workflow)

    ((name, options),) = trace
    row = active(workflow)
    assert (name, options["queue"], options["priority"]) == ("two", "slow", 3)
    assert options["scheduled_for"] == clock.utc(row.scheduled_for) > clock.now("default")


def test_an_early_message_changes_nothing_and_is_dispatched_again_for_its_time() -> None:
    workflow = DispatchedCarried.start()
    run_next_step(workflow)
    row = active(workflow)
    trace.clear()
    before = everything(workflow)

    assert execute(row.pk) == 0

    assert [(name, options["scheduled_for"]) for name, options in trace] == [
        ("two", clock.utc(row.scheduled_for))
    ]
    after = everything(workflow)
    for rows in (before, after):
        rows[-1].pop("dispatched_at")
    assert before == after


@pytest.mark.parametrize(
    ("act", "carried"),
    [
        (lambda w: w.pause(), []),
        (lambda w: w.cancel(), []),
        (lambda w: w.skip(), ["two"]),
        (lambda w: w.pause().resume(), ["one"]),
        (lambda w: w.pause().resume_at("two"), ["two"]),
    ],
    ids=["pause", "cancel", "skip", "resume", "resume_at"],
)
def test_executions_scheduled_by_operators_are_dispatched(act: Any, carried: list[str]) -> None:
    workflow = DispatchedCarried.start()
    trace.clear()

    act(workflow)

    assert [name for name, _ in trace] == carried


def test_an_unavailable_broker_only_delays_steps(caplog: pytest.LogCaptureFixture) -> None:
    with override_settings(GENEVA_DRIVE={"DISPATCHER": (HERE, {"fails": True})}):
        workflow = DispatchedCarried.start()

    assert "could not be dispatched" in caplog.text
    row = active(workflow)
    assert (row.state, row.dispatched_at, row.job_id) == ("scheduled", None, None)
    assert execute(row.pk) == 1


@pytest.mark.parametrize("path", ["nowhere.Dispatcher", "geneva_drive.dispatchers.Nobody", "no dots"])
def test_the_error_names_a_dispatcher_that_cannot_be_used(path: str) -> None:
    with (
        override_settings(GENEVA_DRIVE={"DISPATCHER": path}),
        pytest.raises(DispatcherError, match=path),
    ):
        dispatch.configured_dispatcher()


def test_a_start_is_committed_even_if_the_dispatcher_cannot_be_used(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with override_settings(GENEVA_DRIVE={"DISPATCHER": "nowhere.Dispatcher"}):
        workflow = DispatchedCarried.start()

    assert_state(workflow, "ready")
    assert "nowhere.Dispatcher" in caplog.text
