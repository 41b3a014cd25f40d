"""Where every dispatcher ends."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError, connections, transaction
from pytest_django import Settings

from geneva_drive import Workflow, clock, step
from geneva_drive.dispatchers import run, running
from geneva_drive.exceptions import DispatcherError
from geneva_drive.execution import executor, heartbeat
from geneva_drive.models import Process, StepExecution
from tests.dispatchers.recording import Recording
from tests.testapp.workflows import Heroless

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("recording")]

ran: list[tuple[str, Any]] = []


class Carried(Workflow):
    may_proceed_without_hero = True

    class Meta:
        app_label = "testapp"

    @step
    def one(self) -> None:
        ran.append(("one", self.pk))

    @step
    def two(self) -> None:
        ran.append(("two", self.pk))


class CarriedFailing(Workflow):
    may_proceed_without_hero = True

    class Meta:
        app_label = "testapp"

    @step
    def fail(self) -> None:
        raise ValueError("not today")


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def _only(workflow: Workflow) -> Any:
    return workflow.executions.get().pk


def test_a_job_runs_its_execution_and_continues_inline() -> None:
    workflow = Carried.start()

    run(_only(workflow), "default", kind="test")

    workflow.refresh_from_db()
    assert (workflow.state, ran) == ("finished", [("one", workflow.pk), ("two", workflow.pk)])


def test_a_dispatched_execution_names_its_process_and_heartbeat() -> None:
    workflow = Carried.start()
    assert not Process.objects.exists(), "at the first step, not before"

    run(_only(workflow), "default", kind="test")

    process = Process.objects.get()
    assert (process.kind, process.pid) == ("test", os.getpid())
    assert set(workflow.executions.values_list("process_id", flat=True)) == {process.pk}
    run(_only(Heroless.start()), "default", kind="test")
    assert Process.objects.count() == 1, "one for the process"


def test_without_inline_continuation_each_step_is_a_job(settings: Settings, recording: Any) -> None:
    settings.GENEVA_DRIVE = {**settings.GENEVA_DRIVE, "INLINE_CONTINUATION": False}
    workflow = Carried.start()

    run(_only(workflow), "default", kind="test")

    assert ran == [("one", workflow.pk)]
    assert [pk for pk, _ in Recording.told] == list(
        workflow.executions.order_by("pk").values_list("pk", flat=True)
    )


def test_a_long_chain_goes_through_the_dispatcher_again(settings: Settings) -> None:
    settings.GENEVA_DRIVE = {
        "DISPATCHER": ("tests.dispatchers.recording.Recording", {"inline_continuation_for": timedelta(0)})
    }
    workflow = Carried.start()

    run(_only(workflow), "default", kind="test")

    assert ran == [("one", workflow.pk)]
    assert len(Recording.told) == 2


def test_a_stopping_process_ends_after_the_running_step() -> None:
    workflow = Carried.start()

    run(_only(workflow), "default", kind="test", is_stopping=lambda: True)

    assert ran == [("one", workflow.pk)], "what was carried here is run; nothing is gone on with"
    assert len(Recording.told) == 2


def test_a_duplicate_job_runs_its_execution_once() -> None:
    workflow = Carried.start()
    first = _only(workflow)

    run(first, "default", kind="test")
    rows = list(StepExecution.objects.order_by("pk").values())
    run(first, "default", kind="test")
    run(str(first), "default", kind="test")

    assert len(ran) == 2
    assert list(StepExecution.objects.order_by("pk").values()) == rows


def test_two_deliveries_at_once_run_it_once() -> None:
    workflow = Carried.start()
    first = _only(workflow)
    barrier = threading.Barrier(4)
    problems: list[BaseException] = []

    def deliver() -> None:
        try:
            barrier.wait()
            run(first, "default", kind="test")
        except BaseException as error:  # noqa: BLE001 - shown by the test
            problems.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=deliver) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert problems == []
    assert ran == [("one", workflow.pk), ("two", workflow.pk)]


def test_outdated_jobs_change_nothing() -> None:
    canceled = Carried.start()
    canceled.cancel()
    paused = Carried.start()
    paused.pause()
    before = list(StepExecution.objects.order_by("pk").values())

    for pk in (_only(canceled), _only(paused), 10**9):
        run(pk, "default", kind="test")

    assert ran == []
    assert list(StepExecution.objects.order_by("pk").values()) == before


@pytest.mark.parametrize("execution_id", ["'; DROP TABLE", "os.system", None, "1e5"])
def test_an_invalid_key_is_refused(execution_id: Any) -> None:
    with pytest.raises(DispatcherError, match="for an execution's id"):
        run(execution_id, "default", kind="test")


def test_an_unknown_database_is_refused() -> None:
    with pytest.raises(DispatcherError, match="'nowhere'"):
        run(1, "nowhere", kind="test")


def test_keys_survive_json() -> None:
    key = uuid4()
    assert (running.message_id(12), running.message_id(key)) == (12, str(key))


def test_a_steps_exception_is_recorded_and_logged_and_not_raised(caplog: pytest.LogCaptureFixture) -> None:
    workflow = CarriedFailing.start()

    run(_only(workflow), "default", kind="test")

    workflow.refresh_from_db()
    assert workflow.state == "paused"
    assert workflow.executions.get().error_message == "not today"
    assert caplog.text.count("ValueError: not today") == 1


def test_an_unavailable_database_is_raised_before_anything_started(monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = Carried.start()

    def unreachable(*_: Any, **__: Any) -> None:
        raise OperationalError("nobody answers")

    with monkeypatch.context() as patch:
        patch.setattr(executor, "prepare", unreachable)
        with pytest.raises(OperationalError):
            run(_only(workflow), "default", kind="test")

    run(_only(workflow), "default", kind="test")
    assert len(ran) == 2


def test_a_process_that_missed_its_lease_beats_before_it_starts_a_step() -> None:
    run(_only(Heroless.start()), "default", kind="test")
    beating = heartbeat.ensure("default", "test")
    assert beating is not None
    beating._last_beat = clock.ticks() - 3600
    assert not beating.is_alive()
    workflow = Carried.start()

    run(_only(workflow), "default", kind="test")

    assert len(ran) == 2
    assert beating.is_alive()
    assert [pk for pk, _ in Recording.told].count(_only_first(workflow)) == 1, "it was not sent round"


def _only_first(workflow: Workflow) -> Any:
    return workflow.executions.order_by("pk").values_list("pk", flat=True)[0]


def test_no_heartbeat_starts_inside_a_callers_transaction() -> None:
    with transaction.atomic():
        workflow = Carried.start()
        run(_only(workflow), "default", kind="test")
        assert len(ran) == 2
        assert not Process.objects.exists()


def test_an_execution_enqueued_within_a_step_runs_after_it(settings: Settings) -> None:
    order: list[str] = []

    class Nesting(Workflow):
        may_proceed_without_hero = True

        class Meta:
            app_label = "testapp"

        @step
        def outer(self) -> None:
            order.append("outer begins")
            run(inner_pk, "default", kind="test")
            order.append("outer ends")

    inner = Carried.start()
    inner_pk = _only(inner)
    outer = Nesting.start()

    run(_only(outer), "default", kind="test")

    assert order == ["outer begins", "outer ends"]
    assert ran == [("one", inner.pk), ("two", inner.pk)]


def test_a_child_process_has_a_heartbeat_of_its_own() -> None:
    run(_only(Heroless.start()), "default", kind="test")
    workflow = Carried.start()
    connections.close_all()

    child = os.fork()
    if child == 0:
        status = 1
        try:
            run(_only(workflow), "default", kind="test")
            heartbeat._running["default"]._stop.set()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0

    assert set(Process.objects.values_list("pid", flat=True)) == {os.getpid(), child}
    assert {each.process.pid for each in workflow.executions.all()} == {child}  # type: ignore[union-attr]
