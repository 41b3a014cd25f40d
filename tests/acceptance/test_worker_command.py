"""``manage.py geneva_worker`` as an operator uses it."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest
from django.core.management import ManagementUtility

from geneva_drive.models import Process, StepExecution
from tests.acceptance.processes import Launcher, until
from tests.acceptance.room import Room
from tests.acceptance.workshop.workflows import Chain


def test_a_drained_worker_has_completed_everything(launch: Launcher, room: Room) -> None:
    workflows = [Chain.start() for _ in range(5)]

    child = launch.worker("--drain", "--threads", "2")
    child.finish()

    steps = Counter((words[0], words[1]) for words in room.notes())
    assert steps == {
        (name, str(each.pk)): 1 for each in workflows for name in ("one", "two", "three", "four", "five")
    }
    assert Chain.objects.finished().count() == 5
    assert not StepExecution.objects.active().exists()
    assert not Process.objects.exists()
    assert "Worker stopped after 25 step(s)." in child.output()


def test_a_worker_logs_each_step_and_its_own_end(launch: Launcher, room: Room) -> None:
    workflow = Chain.start()

    child = launch.worker("-v", "2")
    until(lambda: len(room.notes()) == 5, "it has run", child=child)
    child.signal(signal.SIGTERM)
    child.finish()

    for name in ("one", "two", "three", "four", "five"):
        assert f"{workflow}: {name}, 0." in child.output()
    assert "Shutting down: finishing running steps." in child.output()


@pytest.mark.only_on("sqlite", reason="elsewhere a missing table is no error that could pass")
def test_a_worker_does_not_wait_for_missing_tables(launch: Launcher, tmp_path: Path) -> None:
    names = {"default": str(tmp_path / "empty.sqlite3"), "other": str(tmp_path / "other.sqlite3")}

    child = launch.worker("--drain", environment={"GENEVA_TEST_NAMES": json.dumps(names)})

    assert child.wait() == 2
    assert "Database unavailable" not in child.output()
    assert "The tables of geneva_drive are missing in 'default': run manage.py migrate." in child.output()


@pytest.mark.parametrize("threads", ["1", "3"])
def test_max_steps_is_exact(launch: Launcher, room: Room, threads: str) -> None:
    for _ in range(4):
        Chain.start()

    child = launch.worker("--max-steps", "7", "--threads", threads)
    child.finish()

    assert len(room.notes()) == 7
    assert "Worker stopped after 7 step(s)." in child.output()
    assert not StepExecution.objects.in_progress().exists()
    launch.worker("--drain").finish()
    assert Counter(words[0] for words in room.notes()) == dict.fromkeys(
        ("one", "two", "three", "four", "five"), 4
    )


def test_a_worker_serves_only_its_queues(launch: Launcher, room: Room) -> None:
    here = Chain.start(job_options={"queue": "here"})
    there = Chain.start(job_options={"queue": "there"})
    elsewhere = Chain.start()

    launch.worker("--drain", "--queues", "here, there").finish()

    assert {words[1] for words in room.notes()} == {str(here.pk), str(there.pk)}
    elsewhere.refresh_from_db()
    assert elsewhere.state == "ready"


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_worker_on_a_second_database(launch: Launcher, room: Room) -> None:
    workflow = Chain.start(using="other")

    launch.worker("--drain").finish()
    assert room.notes() == []

    launch.worker("--drain", "--using", "other").finish()
    workflow.refresh_from_db()
    assert workflow.state == "finished"
    assert len(room.notes()) == 5
    assert not Process.objects.using("other").exists()


def test_an_idle_worker_polls(launch: Launcher, room: Room) -> None:
    child = launch.worker("--poll-interval", "0.1", "--no-listen", "--max-steps", "5")
    until(Process.objects.exists, "the worker has begun", child=child)
    Chain.start()
    child.finish()
    assert len(room.notes()) == 5


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--threads", "0"], "--threads"),
        (["--threads", "many"], "--threads"),
        (["--max-steps", "-1"], "--max-steps"),
        (["--poll-interval", "0"], "--poll-interval"),
        (["--poll-interval", "nan"], "--poll-interval"),
        (["--using", "nowhere"], "nowhere"),
        (["--queues", " , "], "--queues"),
        (["--unknown"], "--unknown"),
    ],
)
def test_wrong_arguments_are_refused_with_status_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    with pytest.raises(SystemExit) as left:
        ManagementUtility(["manage.py", "geneva_worker", *arguments]).execute()
    assert left.value.code == 2
    assert named in capsys.readouterr().err


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        ManagementUtility(["manage.py", "geneva_worker", "--help"]).execute()
    assert not left.value.code
    printed = capsys.readouterr().out
    for option in (
        "--queues",
        "--threads",
        "--poll-interval",
        "--drain",
        "--max-steps",
        "--no-listen",
        "--using",
    ):
        assert option in printed
