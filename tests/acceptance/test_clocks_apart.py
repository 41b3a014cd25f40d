"""Hosts whose wall clocks are ten minutes apart."""

from __future__ import annotations

import shutil
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from geneva_drive import clock
from geneva_drive.models import StepExecution
from tests.acceptance.processes import Launcher, until
from tests.acceptance.room import Room
from tests.acceptance.workshop.workflows import Chain, Patient

pytestmark = pytest.mark.only_on(
    "postgresql", "mysql", "mariadb", reason="on SQLite the host's clock is the database's"
)

_LIBRARIES = [
    *Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"),
    *Path("/usr/lib").glob("faketime/libfaketimeMT.so.1"),
]


@pytest.fixture(params=["+10m", "-10m"])
def elsewhen(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the environment of a process with a wrong wall clock."""
    if not _LIBRARIES or shutil.which("faketime") is None:
        pytest.skip("libfaketime is not installed (Debian: faketime)")
    return {"LD_PRELOAD": str(_LIBRARIES[0]), "FAKETIME": request.param, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def test_a_live_step_is_not_recovered_by_a_host_with_another_clock(
    launch: Launcher, room: Room, elsewhen: dict[str, str]
) -> None:
    """With a lease of seconds and clocks ten minutes apart, neither worker presumes the other dead."""
    settings = {"LEASE": 10, "STUCK_AFTER": 60}
    workflow = Patient.start()
    here = launch.worker(settings=settings)
    until(lambda: room.notes("began"), "the body has begun", child=here)

    keeper = launch.command("geneva_housekeeping", "--json", settings=settings, environment=elsewhen)
    keeper.finish()
    assert '"recovered": 0' in keeper.output()

    # It has the other time, runs next to the first worker, and leaves its step alone.
    there = launch.worker("--drain", settings=settings, environment=elsewhen)
    Chain.start()
    there.finish()
    assert StepExecution.objects.in_progress().count() == 1
    room.allow("go")
    until(lambda: room.notes("after"), "it goes on", child=here)
    here.signal(signal.SIGTERM)
    here.finish()
    workflow.refresh_from_db()
    assert workflow.state == "finished"
    assert len(room.notes("began")) == 1


def test_a_due_step_is_due_on_a_host_with_another_clock(
    launch: Launcher, room: Room, elsewhen: dict[str, str]
) -> None:
    due, later = Chain.start(), Chain.start(at=clock.now() + timedelta(minutes=5))
    launch.worker("--drain", environment=elsewhen).finish()
    due.refresh_from_db()
    later.refresh_from_db()
    assert (due.state, later.state) == ("finished", "ready")
    assert due.started_at is not None
    # All times are the database's, whichever process wrote them.
    assert abs((due.started_at - due.created_at).total_seconds()) < 300
