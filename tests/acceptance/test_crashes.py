"""Processes that die while they run a step."""

from __future__ import annotations

import json
import signal
from collections import Counter
from datetime import timedelta

import pytest
from django.core.management import call_command

from geneva_drive.models import Process, StepExecution
from tests.acceptance.processes import Launcher, until
from tests.acceptance.room import Room
from tests.acceptance.workshop.workflows import Chain, Deadly, DeadlyCanceling, DeadlyPausing, Patient


def test_a_killed_step_is_retried_in_one_new_row(launch: Launcher, room: Room) -> None:
    workflow = Patient.start()
    child = launch.worker()
    until(lambda: room.notes("began"), "the body has begun", child=child)
    child.kill()

    room.allow("go")
    launch.worker("--max-steps", "2").finish()

    workflow.refresh_from_db()
    assert workflow.state == "finished"
    rows = workflow.executions.order_by("pk").values_list("step_name", "state", "outcome", "crashes")
    assert list(rows) == [
        ("hold", "failed", "recovered", 0),
        ("hold", "completed", "success", 1),
        ("after", "completed", "success", 0),
    ]
    dead = workflow.executions.get(outcome="recovered")
    assert dead.finished_at is not None
    assert dead.error_class == "geneva_drive.exceptions.ProcessDied"
    assert dead.metadata == {"crashes": 1}
    assert not Process.objects.exists()


def test_a_step_that_kills_its_process_every_time_ends_paused(launch: Launcher, room: Room) -> None:
    room.allow("death")
    deadly, other = Deadly.start(), Chain.start()
    settings = {"LEASE": 1, "MAX_CRASHES": 2}

    statuses = []
    while StepExecution.objects.active().filter(workflow=deadly).exists():
        # Until the lease of the dead worker has expired, its successor may find nothing to do.
        child = launch.worker("--poll-interval", "0.1", settings=settings)
        until(lambda: child.process.poll() is not None or _is_paused(deadly), "it died or paused")  # noqa: B023
        if child.process.poll() is None:
            child.signal(signal.SIGTERM)
        statuses.append(child.wait())

    assert statuses.count(-signal.SIGKILL) == 2
    deadly.refresh_from_db()
    assert (deadly.state, deadly.next_step_name) == ("paused", "die")
    rows = deadly.executions.filter(step_name="die").order_by("pk")
    assert list(rows.values_list("state", "outcome", "crashes")) == [
        ("failed", "recovered", 0),
        ("failed", "recovered", 1),
    ]
    last = rows.last()
    assert last is not None
    assert last.metadata == {"crashes": 2, "reason": "crashed 2 times in a row"}
    other.refresh_from_db()
    assert other.state == "finished"

    # An operator fixes the cause and resumes: the count starts at zero.
    room.forbid("death")
    deadly.resume(by="somebody", reason="repaired")
    launch.worker("--max-steps", "2").finish()
    deadly.refresh_from_db()
    assert deadly.state == "finished"


def _is_paused(workflow: Deadly) -> bool:
    workflow.refresh_from_db()
    return bool(workflow.state == "paused")


def test_a_step_decides_what_a_crash_means(launch: Launcher, room: Room) -> None:
    pausing, canceling = DeadlyPausing.start(), DeadlyCanceling.start()
    for _ in range(2):
        assert launch.worker("--queues", "default").wait() == -signal.SIGKILL

    until(lambda: _recover_now(launch) and not StepExecution.objects.active().exists(), "both are recovered")

    pausing.refresh_from_db()
    canceling.refresh_from_db()
    assert (pausing.state, canceling.state) == ("paused", "canceled")
    assert len(room.notes("die")) == 2


@pytest.mark.parametrize(("action", "state"), [("pause", "paused"), ("cancel", "canceled")])
def test_the_setting_decides_what_a_crash_means(
    launch: Launcher, room: Room, action: str, state: str
) -> None:
    workflow = Patient.start()
    child = launch.worker()
    until(lambda: room.notes("began"), "the body has begun", child=child)
    child.kill()

    settings = {"LEASE": 1, "RECOVERY_ACTION": action}
    until(
        lambda: _recover_now(launch, settings) and not StepExecution.objects.in_progress().exists(),
        "recovery",
    )

    workflow.refresh_from_db()
    assert workflow.state == state
    assert list(workflow.executions.values_list("state", "outcome")) == [("failed", "recovered")]


def _recover_now(launch: Launcher, settings: dict[str, object] | None = None) -> bool:
    launch.command("geneva_housekeeping", settings=settings or {"LEASE": 1}).finish()
    return True


def test_a_killed_worker_is_recovered_while_its_successor_has_the_same_name(
    launch: Launcher, room: Room
) -> None:
    """A successor on the same host, started at once, has its own identity and hides nothing."""
    Patient.start()
    first = launch.worker()
    until(lambda: room.notes("began"), "the body has begun", child=first)
    first.kill()
    second = launch.worker()

    until(lambda: len(room.notes("began")) == 2, "the successor runs it again", child=second)
    room.allow("go")
    until(lambda: room.notes("after"), "it goes on", child=second)
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    assert Counter(words[0] for words in room.notes()) == {"began": 2, "ended": 1, "after": 1}


def test_two_housekeeping_passes_leave_a_long_live_step_alone(launch: Launcher, room: Room) -> None:
    """A step longer than the lease and STUCK_AFTER is left alone while its process is live."""
    settings = {"LEASE": 1, "STUCK_AFTER": 1}
    workflow = Patient.start()
    worker = launch.worker(settings=settings)
    until(lambda: room.notes("began"), "the body has begun", child=worker)
    began = StepExecution.objects.in_progress().get()

    # Beats sent when the lease, counted from the start of the step, has expired.
    assert began.process_id is not None
    assert began.started_at is not None
    beats = Process.objects.filter(
        pk=began.process_id, heartbeat_at__gt=began.started_at + timedelta(seconds=2)
    )

    until(beats.exists, "the step is older than the lease", child=worker)
    keepers = [launch.command("geneva_housekeeping", "--json", settings=settings) for _ in range(2)]
    for keeper in keepers:
        keeper.finish()
        assert '"recovered": 0' in keeper.output()

    room.allow("go")
    until(lambda: room.notes("after"), "it goes on", child=worker)
    worker.signal(signal.SIGTERM)
    worker.finish()
    workflow.refresh_from_db()
    assert workflow.state == "finished"
    assert len(room.notes("began")) == 1


def test_two_housekeeping_passes_recover_dead_rows_once_and_fence_a_late_result(
    launch: Launcher, room: Room
) -> None:
    """A process is stopped beyond its lease: its step is recovered once, and its own result is fenced."""
    settings = {"LEASE": 1}
    workflows = [Patient.start() for _ in range(4)]
    sleeper = launch.worker("--threads", "4", settings=settings)
    until(lambda: len(room.notes("began")) == 4, "the bodies have begun", child=sleeper)
    sleeper.stop()

    def recovered() -> int:
        for keeper in [launch.command("geneva_housekeeping", settings=settings) for _ in range(2)]:
            keeper.finish()
        return StepExecution.objects.filter(outcome="recovered").count()

    until(recovered, "the lease is over")
    assert recovered() == 4
    assert StepExecution.objects.scheduled().count() == 4
    room.allow("go")
    # It finishes its step late, notices, and continues under another identity.
    sleeper.signal(signal.SIGCONT)
    until(lambda: len(room.notes("after")) == 4, "the successors have run", child=sleeper)
    sleeper.signal(signal.SIGTERM)
    sleeper.finish()

    assert sleeper.output().count("was recovered or changed while the step was running") == 4
    for workflow in workflows:
        rows = workflow.executions.order_by("pk").values_list("step_name", "state", "outcome")
        assert list(rows) == [
            ("hold", "failed", "recovered"),
            ("hold", "completed", "success"),
            ("after", "completed", "success"),
        ]


def test_housekeeping_prints_its_counts(launch: Launcher, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("geneva_housekeeping", "--json")
    counts = json.loads(capsys.readouterr().out)
    assert {"recovered", "redispatched", "processes", "workflows", "executions", "protected"} <= set(counts)
    assert set(counts.values()) == {0}
