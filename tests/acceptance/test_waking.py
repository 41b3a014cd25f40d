"""On PostgreSQL, an idle worker is notified at once of due steps. Its poll interval here is an hour."""

from __future__ import annotations

import signal

import pytest
from django.db import connection, transaction

from geneva_drive.models import Process, StepExecution
from tests.acceptance.processes import Child, Launcher, until
from tests.acceptance.room import Room
from tests.acceptance.workshop.workflows import Chain, Patient

pytestmark = pytest.mark.only_on("postgresql", reason="only PostgreSQL notifies")

HOUR = ("--poll-interval", "3600")


def _idle(launch: Launcher, *arguments: str) -> Child:
    """Start a worker that listens and has found nothing."""
    child = launch.worker(*HOUR, *arguments)
    until(_listeners, "the worker listens", child=child)
    return child


def _listeners() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %%'"
        )
        return [pid for (pid,) in cursor.fetchall()]


def test_a_start_wakes_a_worker(launch: Launcher, room: Room) -> None:
    child = _idle(launch, "--max-steps", "5")
    Chain.start()
    child.finish()
    assert len(room.notes()) == 5


def test_a_start_wakes_a_worker_at_the_commit_and_not_before(launch: Launcher, room: Room) -> None:
    child = _idle(launch, "--max-steps", "5")
    with transaction.atomic():
        workflow = Chain.start()
        with transaction.atomic():
            workflow.pause()
        workflow.resume()
        assert room.notes() == []
    child.finish()
    assert len(room.notes()) == 5


def test_a_resume_wakes_a_worker(launch: Launcher, room: Room) -> None:
    workflow = Chain.start()
    workflow.pause()
    child = _idle(launch, "--max-steps", "5")
    workflow.resume()
    child.finish()
    assert len(room.notes()) == 5


def test_skip_and_resume_at_wake_a_worker(launch: Launcher, room: Room) -> None:
    skipped, moved = Chain.start(), Chain.start()
    skipped.pause()
    moved.pause()
    child = _idle(launch, "--max-steps", "5")
    skipped.skip()
    until(lambda: len(room.notes()) == 4, "what was skipped goes on", child=child)
    moved.resume_at("five")
    child.finish()
    assert [words[0] for words in room.notes()] == ["two", "three", "four", "five", "five"]


def test_a_next_step_on_another_queue_wakes_its_worker(launch: Launcher, room: Room) -> None:
    """With workers of two queues, only the one for the step's queue runs it."""
    there = launch.worker(*HOUR, "--queues", "there", "--max-steps", "5")
    here = launch.worker(*HOUR, "--queues", "here")
    until(lambda: len(_listeners()) == 2, "both listen", child=there)
    Chain.start(job_options={"queue": "there"})
    there.finish()
    assert {words[-1] for words in room.notes()} == {str(there.pid)}
    here.signal(signal.SIGTERM)
    here.finish()


def test_a_worker_listens_again_after_a_lost_connection(launch: Launcher, room: Room) -> None:
    child = _idle(launch, "--max-steps", "5")
    before = _listeners()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", before)
    until(lambda: set(_listeners()) - set(before), "it listens again", child=child)
    Chain.start()
    child.finish()
    assert len(room.notes()) == 5


def test_without_listening_a_worker_polls(launch: Launcher, room: Room) -> None:
    child = launch.worker("--no-listen", "--poll-interval", "0.1", "--max-steps", "5")
    until(Process.objects.exists, "it has begun", child=child)
    Chain.start()
    child.finish()
    assert "polling" in child.output()
    assert _listeners() == []


def test_an_idle_thread_is_woken_during_a_long_step(launch: Launcher, room: Room) -> None:
    child = _idle(launch, "--threads", "2")
    Patient.start()
    until(lambda: room.notes("began"), "one thread is busy", child=child)
    Chain.start()
    until(lambda: len(room.notes("five")) == 1, "the other thread runs it", child=child)
    room.allow("go")
    until(lambda: not StepExecution.objects.active().exists(), "all is done", child=child)
    child.signal(signal.SIGTERM)
    child.finish()
