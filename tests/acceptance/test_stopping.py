"""The first signal finishes running steps; the second stops at once and loses nothing."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from geneva_drive.models import Process, StepExecution
from tests.acceptance.processes import Launcher, until
from tests.acceptance.room import Room
from tests.acceptance.workshop.workflows import Patient


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_finishes_running_steps(
    launch: Launcher, room: Room, number: signal.Signals
) -> None:
    """With two running steps and one that is due, the two complete, and the next steps stay scheduled."""
    for _ in range(3):
        Patient.start()
    child = launch.worker("--threads", "2")
    until(lambda: len(room.notes("began")) == 2, "two bodies have begun", child=child)

    child.signal(number)
    room.allow("go")

    assert child.wait() == 0
    assert len(room.notes("ended")) == 2
    assert room.notes("after") == []
    assert Counter(StepExecution.objects.values_list("step_name", "state")) == {
        ("hold", "completed"): 2,
        ("after", "scheduled"): 2,
        ("hold", "scheduled"): 1,
    }
    assert not Process.objects.exists()
    assert "Traceback" not in child.output()


def test_the_second_signal_stops_at_once_and_another_worker_continues(launch: Launcher, room: Room) -> None:
    """With a lease of an hour, only a process that marked itself dead is recovered within this test."""
    workflow = Patient.start()
    settings = {"LEASE": 3600}
    child = launch.worker(settings=settings)
    until(lambda: room.notes("began"), "the body has begun", child=child)

    # Two different signals: the system may merge two of the same kind.
    child.signal(signal.SIGTERM)
    child.signal(signal.SIGINT)
    status = child.wait()

    assert status == 1
    assert StepExecution.objects.in_progress().count() == 1
    room.allow("go")
    launch.worker("--max-steps", "2", settings=settings).finish()

    workflow.refresh_from_db()
    assert workflow.state == "finished"
    assert len(room.notes("began")) == 2
    assert list(workflow.executions.order_by("pk").values_list("step_name", "state", "outcome")) == [
        ("hold", "failed", "recovered"),
        ("hold", "completed", "success"),
        ("after", "completed", "success"),
    ]
