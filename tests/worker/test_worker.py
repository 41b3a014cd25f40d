"""The worker's loop, in the test's own process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections

from geneva_drive import clock, step
from geneva_drive.execution import executor
from geneva_drive.housekeeping import Chore, Counts
from geneva_drive.models import Process, StepExecution, Workflow
from geneva_drive.worker import Worker
from tests.acceptance.processes import until
from tests.worker.support import TRACE, Base, active, history

pytestmark = pytest.mark.django_db(transaction=True)


class LoopedPlain(Base):
    @step
    def one(self) -> None:
        TRACE.append((self.pk, "one"))

    @step
    def two(self) -> None:
        TRACE.append((self.pk, "two"))


class LoopedFailing(Base):
    @step
    def one(self) -> None:
        TRACE.append((self.pk, "one"))

    @step
    def two(self) -> None:
        raise ValueError("not today")


class LoopedLeaving(Base):
    """Its step raises an exception that ends processes."""

    @step
    def only(self) -> None:
        TRACE.append((self.pk, "only"))
        raise SystemExit(3)


class LoopedInterrupted(Base):
    @step(on_crash="cancel")
    def only(self) -> None:
        raise KeyboardInterrupt


class Foreign(BaseException):
    """An exception that is no ``Exception``."""


class LoopedStrange(Base):
    @step(on_crash="pause")
    def only(self) -> None:
        raise Foreign("from afar")


GATE = threading.Event()


class LoopedGated(Base):
    """Waits for the test."""

    @step
    def only(self) -> None:
        TRACE.append((self.pk, "began"))
        assert GATE.wait(60)

    @step
    def after(self) -> None:
        TRACE.append((self.pk, "after"))


@pytest.fixture(autouse=True)
def _closed_gate() -> None:
    GATE.clear()


@contextmanager
def running(**options: Any) -> Iterator[Worker]:
    """A worker in a thread; it is stopped at the end."""
    worker = Worker(poll_interval=0.05, **options)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield worker
    finally:
        GATE.set()
        worker.stop()
        thread.join(90)
    assert not thread.is_alive()
    assert failed == []


def test_a_step_that_raises_pauses_its_workflow_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    failing = LoopedFailing.start(at=clock.now() - timedelta(hours=1))
    plain = LoopedPlain.start()

    assert Worker(drain=True).run() == 4

    failing.refresh_from_db()
    plain.refresh_from_db()
    assert (failing.state, plain.state) == ("paused", "finished")
    assert history(failing) == [("one", "completed", "success"), ("two", "failed", "failed")]
    # Once, whoever says it: the executor reports, and the worker does not repeat.
    (told,) = [
        record for record in caplog.records if record.name.startswith("geneva_drive") and record.exc_info
    ]
    assert str(failing.pk) in told.getMessage()


@pytest.mark.parametrize(
    ("kind", "state", "error"),
    [
        (LoopedLeaving, "paused", "SystemExit"),
        (LoopedInterrupted, "canceled", "KeyboardInterrupt"),
        (LoopedStrange, "paused", "Foreign"),
    ],
)
def test_an_exception_that_ends_processes_counts_as_a_crash(
    kind: type[Base], state: str, error: str, settings: Any
) -> None:
    settings.GENEVA_DRIVE = {"MAX_CRASHES": 2}
    workflow = kind.start()
    other = LoopedPlain.start()

    Worker(drain=True).run()

    workflow.refresh_from_db()
    other.refresh_from_db()
    assert (workflow.state, other.state) == (state, "finished")
    last = workflow.executions.order_by("-pk")[0]
    assert (last.state, last.outcome) == ("failed", "recovered")
    assert last.error_class is not None
    assert last.error_class.endswith(error)
    assert len(TRACE) == (4 if kind is LoopedLeaving else 2)


def test_no_more_is_claimed_than_there_are_idle_threads() -> None:
    for _ in range(5):
        LoopedGated.start()
    with running(threads=2) as worker:
        until(lambda: len(TRACE) == 2, "both threads are busy")
        worker._wake.set()
        assert StepExecution.objects.in_progress().count() == 2
        assert StepExecution.objects.scheduled().count() == 3


def test_unstarted_claims_are_released_at_shutdown() -> None:
    workflow = LoopedPlain.start()
    worker = Worker()
    worker.heartbeat.start()
    assert worker._claim() == 1
    assert active(workflow).state == "in_progress"

    worker._pool.stop()
    worker.heartbeat.stop()

    row = active(workflow)
    assert (row.state, row.crashes, row.attempt_token) == ("scheduled", 0, None)
    assert TRACE == []
    assert not Process.objects.exists()


def test_a_row_started_by_another_process_is_not_released() -> None:
    workflow = LoopedPlain.start()
    worker = Worker()
    worker.heartbeat.start()
    worker._claim()
    StepExecution.objects.filter(workflow=workflow).update(attempt_token=uuid4())
    worker._pool.stop()
    worker.heartbeat.stop()
    assert active(workflow).state == "in_progress"
    assert Process.objects.filter(pk=worker.heartbeat.process_id).exists(), "the row that names it is kept"


def test_the_next_step_is_released_when_its_worker_stops() -> None:
    workflow = LoopedGated.start()
    with running() as worker:
        until(lambda: TRACE, "the body has begun")
        worker.stop()
    assert [(workflow.pk, "began")] == TRACE
    assert history(workflow) == [("only", "completed", "success"), ("after", "scheduled", None)]


def test_a_process_that_missed_its_lease_starts_nothing_before_its_next_heartbeat(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"LEASE": timedelta(minutes=10)}
    workflow = LoopedPlain.start()
    worker = Worker()
    worker.heartbeat.start()
    try:
        assert worker.heartbeat._last_beat is not None
        worker.heartbeat._last_beat -= 601
        assert worker._claim() == 0
        assert active(workflow).state == "scheduled"

        worker.heartbeat.beat()
        assert worker._claim() == 1

        # Claimed, and the lease was missed before the step started: released.
        worker.heartbeat._last_beat -= 601
        claimed = worker._pool._todo.get_nowait()
        assert claimed is not None
        assert executor.run(claimed, worker._runner(has_place=True)) == 0
        assert TRACE == []
        assert active(workflow).state == "scheduled"
    finally:
        worker.heartbeat.stop()


def test_an_unused_place_of_the_budget_is_put_back(settings: Any) -> None:
    """Given a next step on another queue, its place in the budget is available again."""
    LoopedPlain.start()
    worker = Worker(max_steps=3)
    runner = worker._runner()
    row = StepExecution.objects.scheduled().get()
    worker.heartbeat.start()
    try:
        assert runner.may_continue_inline(row, "default")
        assert runner.may_continue_inline(row, "default")
        assert worker._budget.left == 2
        assert not runner.may_continue_inline(row, "another")
        runner.close()
        assert worker._budget.left == 3
    finally:
        worker.heartbeat.stop()


def test_a_draining_worker_does_not_wait_for_later_executions() -> None:
    """Given nothing due, a draining worker leaves; what is due later is not waited for."""
    later = LoopedPlain.start(at=clock.now() + timedelta(hours=1))
    assert Worker(drain=True).run() == 0
    assert active(later).state == "scheduled"


def test_a_worker_does_the_housekeeping(settings: Any) -> None:
    """Given a step that a dead process left in progress, a worker recovers it when it starts."""
    workflow = LoopedPlain.start()
    dead = _dead_process()
    StepExecution.objects.filter(workflow=workflow).update(
        state="in_progress", process=dead, attempt_token=uuid4(), started_at=dead.heartbeat_at
    )
    Workflow.objects.filter(pk=workflow.pk).update(state="performing", current_step_name="one")

    with running():
        until(lambda: LoopedPlain.objects.finished().count() == 1, "it has come to its end")

    assert history(workflow)[0] == ("one", "failed", "recovered")
    assert not Process.objects.exists()


def _dead_process() -> Process:
    moment = clock.local(clock.now() - timedelta(days=1))
    return Process.objects.create(
        hostname="here", pid=1, kind="worker", started_at=moment, heartbeat_at=moment
    )


def test_failed_housekeeping_is_logged_and_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    settings.GENEVA_DRIVE = {"LEASE": timedelta(seconds=0.5)}
    calls = []

    def fails(using: str, _counts: Counts) -> None:
        calls.append(using)
        raise RuntimeError("no luck")

    monkeypatch.setattr("geneva_drive.worker.maintenance.CHORES", (Chore(fails),))
    with running():
        until(lambda: len(calls) > 2, "it was tried again")
        workflow = LoopedPlain.start()
        until(
            lambda: LoopedPlain.objects.finished().filter(pk=workflow.pk).exists(), "steps run all the same"
        )
    assert any("Housekeeping failed" in record.getMessage() for record in caplog.records)


def test_queues_are_named_on_the_process_row() -> None:
    with running(queues=["a", "b"]):
        process = until(Process.objects.first, "it has begun")
    assert (process.kind, process.queues) == ("worker", "a,b")


def test_nothing_is_logged_above_info_by_an_uneventful_run(caplog: pytest.LogCaptureFixture) -> None:
    LoopedPlain.start()
    Worker(drain=True).run()
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
