"""Workers, creators and a cleanup use the same tables at once: nothing fails, and each step runs once."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
from django.db.models import Count

from geneva_drive.models import Process, StepExecution, Workflow
from tests.acceptance.processes import Launcher, until
from tests.acceptance.room import Room
from tests.testapp.models import Effect

pytestmark = pytest.mark.serial

EACH = int(os.environ.get("GENEVA_TEST_ROUNDS", "20"))
"""Workflows that each creator starts. Set more for a longer manual run."""

# On SQLite, threads of one process take turns anyway. On servers: four creators in two processes.
CREATE = f"""
import sys, threading, traceback
from django.db import connections
from tests.acceptance.workshop.workflows import Effects

failed = []

def create():
    try:
        for _ in range({EACH}):
            Effects.start()
    except BaseException:
        traceback.print_exc()
        failed.append(1)
    finally:
        connections.close_all()

threads = [threading.Thread(target=create) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(len(failed))
"""

CLEAN = """
import os, time
from datetime import timedelta
from geneva_drive.housekeeping import clean_up
from tests.acceptance.room import room

while not room().is_allowed("enough"):
    clean_up("default", retention=timedelta(0))
    time.sleep(0.01)
"""


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
@pytest.mark.only_on("mysql", "mariadb", reason="deadlocks are InnoDB's, and so are these levels")
def test_many_workers_on_innodb(launch: Launcher, room: Room, isolation: str) -> None:
    _crowd(launch, room, {"GENEVA_TEST_ISOLATION": isolation})


@pytest.mark.only_on("postgresql", "sqlite", reason="MySQL and MariaDB have a test of their own")
def test_many_workers_on_other_databases(launch: Launcher, room: Room) -> None:
    _crowd(launch, room, {})


def _crowd(launch: Launcher, room: Room, environment: dict[str, str]) -> None:
    workers = [
        launch.worker(
            "--threads", "4", "--poll-interval", "0.1", settings={"LEASE": 60}, environment=environment
        )
        for _ in range(2)
    ]
    creators = [launch.python(CREATE, environment=environment) for _ in range(2)]
    cleaner = launch.python(CLEAN, environment=environment)
    for creator in creators:
        creator.finish()
    until(lambda: not Workflow.objects.ongoing().exists(), "everything has come to its end", child=workers[0])
    for worker in workers:
        worker.has_said("Worker on")
        worker.signal(signal.SIGTERM)
    for worker in workers:
        worker.finish()
    until(lambda: not Workflow.objects.exists(), "the clean-up has taken all", child=cleaner)
    room.allow("enough")
    cleaner.finish()

    done = Effect.objects.values("workflow", "step").annotate(times=Count("pk"))
    assert Counter(row["times"] for row in done) == {1: 4 * EACH * 3}
    assert not StepExecution.objects.exists()
    assert not Process.objects.exists()
    for child in (*workers, *creators, cleaner):
        # Conflicts are retried, not reported.
        assert "Traceback" not in child.output(), child.output()
        assert "locked" not in child.output()
        assert "eadlock" not in child.output()
