"""What is dispatched, when, and how often: the rows own every timer, and dispatching has a memory."""

from __future__ import annotations

import threading
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from pytest_django import Settings

from geneva_drive import clock, housekeeping
from geneva_drive.dispatchers import run
from geneva_drive.lifecycle import dispatch
from geneva_drive.models import StepExecution, Workflow
from geneva_drive.testing import travel
from tests.dispatchers.recording import Recording
from tests.testapp.workflows import Heroless

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)


def _row(workflow: Workflow) -> StepExecution:
    return workflow.executions.get()


def _told() -> list[Any]:
    return [execution_id for execution_id, _ in Recording.told]


def _fed() -> int:
    return housekeeping.feed("default").fed


def test_a_start_is_dispatched_after_its_commit_and_remembered(recording: type[Recording]) -> None:
    with transaction.atomic():
        workflow = Heroless.start(job_options={"queue": "mail", "priority": 3})
        assert recording.told == []

    row = _row(workflow)
    (execution_id, options), *others = recording.told
    assert (execution_id, others) == (row.pk, [])
    assert (options["queue"], options["priority"], options["using"]) == ("mail", 3, "default")
    assert options["delay"] == 0
    assert options["scheduled_for"] == clock.utc(row.scheduled_for)
    assert row.dispatched_at is not None
    assert row.job_id == "job-1"


def test_nothing_is_dispatched_by_a_transaction_that_rolls_back(recording: type[Recording]) -> None:
    with transaction.atomic():
        Heroless.start()
        transaction.set_rollback(True)
    with transaction.atomic():
        kept = Heroless.start()
        with transaction.atomic():
            Heroless.start()
            transaction.set_rollback(True)

    assert _told() == [_row(kept).pk]


def test_a_start_inside_of_an_on_commit_callback_is_dispatched(recording: type[Recording]) -> None:
    started: list[Workflow] = []

    def start() -> None:
        with transaction.atomic():
            started.append(Heroless.start())
            assert recording.told == []

    with transaction.atomic(), transaction.atomic():
        transaction.on_commit(start)

    assert _told() == [_row(started[0]).pk]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_the_commit_that_counts_is_that_of_the_database_with_the_rows(recording: type[Recording]) -> None:
    with transaction.atomic(using="other"):
        with transaction.atomic(using="default"):
            workflow = Heroless.start(using="other")
        assert recording.told == []

    assert recording.told[0][1]["using"] == "other"
    row = StepExecution.objects.using("other").get(workflow_id=workflow.pk)
    assert row.job_id == "job-1"


def test_executions_beyond_the_lookahead_are_fed_when_due_soon(
    recording: type[Recording],
) -> None:
    soon = Heroless.start(at=clock.now() + MINUTE)
    late = Heroless.start(at=clock.now() + 10 * MINUTE)

    assert _told() == [_row(soon).pk]
    assert 55 < recording.told[0][1]["delay"] <= 60
    assert _row(late).dispatched_at is None
    with travel(5 * MINUTE):
        assert _fed() == 0
    with travel(9 * MINUTE):
        assert _fed() == 1
        assert _fed() == 0, "fed once"
    assert _told() == [_row(soon).pk, _row(late).pk]
    assert _row(late).dispatched_at is not None


def test_without_delays_nothing_is_dispatched_before_it_is_due(
    recording: type[Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "supports_delays", False)
    workflow = Heroless.start(at=clock.now() + MINUTE)

    assert recording.told == []
    with travel(MINUTE - timedelta(seconds=5)):
        assert _fed() == 0
    with travel(MINUTE + timedelta(seconds=5)):
        assert _fed() == 1
    assert _told() == [_row(workflow).pk]
    assert recording.told[0][1]["delay"] == 0


def test_a_failed_dispatch_is_made_up_for_once(
    recording: type[Recording], caplog: pytest.LogCaptureFixture
) -> None:
    recording.failing = True
    workflow = Heroless.start()

    assert "could not be dispatched" in caplog.text
    assert (workflow.state, _row(workflow).dispatched_at) == ("ready", None)
    with travel(MINUTE):
        assert _fed() == 0
        assert _row(workflow).dispatched_at is None, "still to be sent"
        recording.failing = False
        assert _fed() == 1
        assert _fed() == 0
    assert _told() == [_row(workflow).pk]


def test_a_feeder_leaves_a_young_row_to_its_sender(recording: type[Recording]) -> None:
    Heroless.start()
    StepExecution.objects.update(dispatched_at=None)  # as it is between the commit and the sending

    assert _fed() == 0
    with travel(timedelta(seconds=6)):
        assert _fed() == 1


def test_a_lost_job_is_dispatched_again_once_per_interval(
    recording: type[Recording],
) -> None:
    workflow = Heroless.start()

    def again() -> int:
        return housekeeping.redispatch("default").redispatched

    assert again() == 0
    with travel(14 * MINUTE):
        assert again() == 0
    with travel(16 * MINUTE):
        assert again() == 1
        assert again() == 0
        assert _fed() == 0
    with travel(30 * MINUTE):
        assert again() == 0
    with travel(32 * MINUTE):
        assert again() == 1
    assert _told() == [_row(workflow).pk] * 3
    assert StepExecution.objects.count() == 1, "the same row"


def test_a_rescheduled_execution_is_dispatched_again_and_its_old_job_ignored(
    recording: type[Recording],
) -> None:
    workflow = Heroless.start(at=clock.now() + MINUTE)
    workflow.pause()
    assert _fed() == 0, "paused"
    workflow.resume()

    assert _told() == [_row(workflow).pk] * 2
    # The job of before the pause comes: too early, so it is handed back for its time, and that is all.
    run(_row(workflow).pk, "default", kind="test")
    assert _row(workflow).state == "scheduled"
    assert _told() == [_row(workflow).pk] * 3


def test_an_early_job_beyond_the_lookahead_changes_nothing(recording: type[Recording]) -> None:
    workflow = Heroless.start(at=clock.now() + 10 * MINUTE)
    before = StepExecution.objects.values().get()

    run(_row(workflow).pk, "default", kind="test")

    assert StepExecution.objects.values().get() == before
    assert recording.told == []


def test_an_execution_deferred_during_its_dispatch_is_fed_later(
    recording: type[Recording],
) -> None:
    def defer(execution_id: Any) -> None:
        # What a fast worker without the class does, before the sender has noted anything.
        later = clock.local(clock.now() + 5 * MINUTE)
        StepExecution.objects.filter(pk=execution_id).update(scheduled_for=later, dispatched_at=None)

    recording.meanwhile = defer
    workflow = Heroless.start()

    assert _row(workflow).dispatched_at is None
    with travel(4 * MINUTE):
        assert _fed() == 1


def test_two_feeders_at_once_send_each_row_once(recording: type[Recording]) -> None:
    recording.failing = True
    workflows = [Heroless.start() for _ in range(20)]
    recording.failing = False
    problems: list[BaseException] = []
    barrier = threading.Barrier(3)

    def feed() -> None:
        try:
            barrier.wait()
            housekeeping.feed("default")
        except BaseException as error:  # noqa: BLE001 - shown by the test
            problems.append(error)
        finally:
            connections.close_all()

    with travel(MINUTE):
        threads = [threading.Thread(target=feed) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert problems == []
    assert sorted(_told()) == sorted(_row(each).pk for each in workflows)


def test_a_feeder_gives_up_on_a_failing_queue_and_continues_with_the_next(
    recording: type[Recording], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recording.failing = True
    for _ in range(6):
        Heroless.start(job_options={"queue": "bad"})
    good = Heroless.start(job_options={"queue": "good"})
    recording.failing = False
    caplog.clear()
    enqueue = recording.enqueue

    def refuses(self: Recording, execution_id: Any, options: dict[str, Any]) -> str | None:
        if options["queue"] == "bad":
            raise ConnectionError("no such queue")
        return enqueue(self, execution_id, options)

    monkeypatch.setattr(recording, "enqueue", refuses)
    with travel(MINUTE):
        assert _fed() == 1

    assert _told() == [_row(good).pk]
    assert caplog.text.count("could not be dispatched") == 3


def test_jobs_are_enqueued_inside_the_transaction_if_the_dispatcher_says_so(
    recording: type[Recording],
) -> None:
    recording.inside = True
    with transaction.atomic():
        workflow = Heroless.start()
        assert _told() == [_row(workflow).pk]
        assert _row(workflow).job_id == "job-1"


def test_a_failed_dispatch_inside_the_transaction_rolls_back_only_itself(
    recording: type[Recording], caplog: pytest.LogCaptureFixture
) -> None:
    recording.inside = True

    def breaks(execution_id: Any) -> None:
        # An error of the database, after which PostgreSQL takes no more statements in this transaction.
        StepExecution.objects.bulk_create([StepExecution.objects.get(pk=execution_id)])

    recording.meanwhile = breaks
    with transaction.atomic():
        workflow = Heroless.start()
        assert Workflow.objects.filter(pk=workflow.pk).exists()
    assert _row(workflow).dispatched_at is None
    assert "IntegrityError" in caplog.text


def test_forgetting_lets_another_dispatcher_be_fed(recording: type[Recording]) -> None:
    due, waiting = Heroless.start(), Heroless.start(at=clock.now() + MINUTE)
    recording.told.clear()
    output = StringIO()

    with travel(timedelta(seconds=10)):
        call_command("geneva_housekeeping", "--forget-dispatched", stdout=StringIO(), stderr=output)

    assert "2 executions marked as not dispatched" in output.getvalue()
    assert sorted(_told()) == sorted([_row(due).pk, _row(waiting).pk])


def test_the_worker_dispatcher_remembers_and_feeds_nothing(settings: Settings) -> None:
    settings.GENEVA_DRIVE = {"DISPATCHER": "geneva_drive.dispatchers.Worker"}
    workflow = Heroless.start()

    assert _row(workflow).dispatched_at is None
    with travel(60 * MINUTE):
        assert _fed() == 0
        assert housekeeping.redispatch("default").redispatched == 0


def test_a_dispatcher_that_cannot_be_made_does_not_stop_a_start(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.GENEVA_DRIVE = {"DISPATCHER": "tests.dispatchers.nowhere.Nothing"}

    workflow = Heroless.start()

    assert _row(workflow).state == "scheduled"
    assert "tests.dispatchers.nowhere" in caplog.text
    assert dispatch.dispatch(_row(workflow)) is False
