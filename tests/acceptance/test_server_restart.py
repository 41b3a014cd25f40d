"""The database server stops and restarts while a worker runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import Launcher, until
from tests.acceptance.room import Room
from tests.conftest import DATABASE
from tests.servers.binaries import STARTERS
from tests.servers.databases import url_variable
from tests.servers.processes import PrivateServer

pytestmark = pytest.mark.only_on("postgresql", "mariadb", "mysql", reason="SQLite has no server")

START = """
from tests.acceptance.workshop.workflows import Asking
print(Asking.start().pk)
"""

LOOK = """
from geneva_drive.models import Workflow, StepExecution
print(*Workflow.objects.order_by("pk").values_list("state", flat=True))
print(*StepExecution.objects.order_by("pk").values_list("step_name", "outcome"))
"""

MIGRATE = """
from django.core.management import call_command
call_command("migrate", run_syncdb=True, verbosity=0)
"""

CREATE = """
import sys
from django.db import connection
name = connection.settings_dict["NAME"]
connection.settings_dict["NAME"] = "postgres" if connection.vendor == "postgresql" else None
with connection.cursor() as cursor:
    cursor.execute("CREATE DATABASE " + name)
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[list[PrivateServer]]:
    """Return the servers that were started; the last one may still run."""
    started: list[PrivateServer] = []
    yield started
    for each in started:
        each.stop()


@pytest.fixture
def server(servers: list[PrivateServer]) -> PrivateServer:
    if not servers or servers[-1].process.poll() is not None:
        servers.append(STARTERS[DATABASE](None))
    return servers[-1]


@pytest.fixture
def away(server: PrivateServer, room: Room, tmp_path: Path) -> Iterator[Launcher]:
    """Return a launcher of processes that use the private server."""
    name = f"geneva_{uuid.uuid4().hex}"
    environment = {
        **os.environ,
        url_variable(DATABASE): server.url,
        "GENEVA_TEST_NAMES": json.dumps({"default": name, "other": name}),
    }
    launcher = Launcher(environment, tmp_path)
    launcher.python(CREATE).finish()
    launcher.python(MIGRATE).finish()
    yield launcher
    launcher.close()


def _restart(server: PrivateServer) -> None:
    """Stop the server, as an upgrade would, and start it again with the same data and port.

    It is not killed: the tests' server does not sync, so it would lose confirmed commits.
    """
    command = list(map(str, server.process.args))  # type: ignore[arg-type]
    user = _user_of(server)
    # PostgreSQL waits for its clients after SIGTERM, but not after SIGINT.
    server.process.send_signal(signal.SIGINT if DATABASE == "postgresql" else signal.SIGTERM)
    server.process.wait(60)
    with (server.directory / "server.log").open("ab") as log:
        server.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            user=user,
        )


def _user_of(server: PrivateServer) -> int | None:
    return server.directory.stat().st_uid if os.geteuid() == 0 else None


def _said(launcher: Launcher, program: str) -> str:
    child = launcher.python(program)
    child.finish()
    return child.output().strip()


def test_a_worker_continues_after_a_restart(server: PrivateServer, away: Launcher, room: Room) -> None:
    """With one running step and one idle thread, the step is recorded and new work is found."""
    _said(away, START)
    child = away.worker("--threads", "2", "--poll-interval", "0.2", settings={"LEASE": 30})
    until(lambda: room.notes("began"), "the body has begun", child=child)

    _restart(server)
    # It finishes while the server is still starting.
    room.allow("go")
    until(lambda: room.notes("after"), "the step was recorded and the next one has run", child=child)
    until(lambda: _can_start(away), "work can be given again", child=child)
    until(lambda: len(room.notes("after")) == 2, "new work is found", child=child)
    child.signal(signal.SIGTERM)
    child.finish()

    assert len(room.notes("began")) == 2
    states, executions = _said(away, LOOK).splitlines()
    assert states == "finished finished"
    assert "recovered" not in executions


def _can_start(launcher: Launcher) -> bool:
    return launcher.python(START).wait() == 0


def test_a_worker_can_be_stopped_while_its_server_is_down(
    server: PrivateServer, away: Launcher, room: Room
) -> None:
    child = away.worker("--poll-interval", "0.1", settings={"LEASE": 1})
    until(lambda: "Worker on" in child.output(), "it has begun", child=child)
    server.process.kill()
    server.process.wait()
    until(lambda: "Database unavailable" in child.output(), "it has noticed", child=child)
    child.signal(signal.SIGTERM)
    assert child.wait() == 0
