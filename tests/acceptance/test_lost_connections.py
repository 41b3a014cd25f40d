"""Connections dropped by a server, a pooler or a firewall at any moment."""

from __future__ import annotations

import signal
from functools import partial

import pytest
from django.db import connection

from geneva_drive.models import Process, StepExecution
from tests.acceptance.processes import Launcher, until
from tests.acceptance.room import Room
from tests.acceptance.workshop.workflows import Asking, Careless, Chain

pytestmark = pytest.mark.only_on("postgresql", "mysql", "mariadb", reason="SQLite has no connections to lose")


def _sessions() -> list[int]:
    """Return the ids of all other sessions on the test database."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT pid FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        else:
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
            )
        return [number for (number,) in cursor.fetchall()]


def _drop_all_sessions() -> int:
    numbers = _sessions()
    with connection.cursor() as cursor:
        for number in numbers:
            if connection.vendor == "postgresql":
                cursor.execute("SELECT pg_terminate_backend(%s)", [number])
            else:
                try:
                    cursor.execute(f"KILL {int(number)}")
                except Exception as error:  # noqa: BLE001 - it may have left by itself
                    assert "Unknown thread" in str(error)  # noqa: PT017
    return len(numbers)


def test_a_connection_lost_between_polls(launch: Launcher, room: Room) -> None:
    child = launch.worker("--poll-interval", "0.2", "--no-listen")
    until(Process.objects.exists, "it has begun", child=child)
    for _ in range(3):
        until(_sessions, "it is connected", child=child)
        _drop_all_sessions()
    Chain.start()
    until(lambda: room.notes("five"), "it goes on", child=child)
    child.signal(signal.SIGTERM)
    child.finish()
    assert len(room.notes()) == 5


def test_a_connection_lost_during_a_step(launch: Launcher, room: Room) -> None:
    """If a step has finished when the connection is found lost, its result is still recorded."""
    workflow = Asking.start()
    child = launch.worker("--max-steps", "2", settings={"LEASE": 30})
    until(lambda: room.notes("began"), "the body has begun", child=child)
    assert _drop_all_sessions()
    room.allow("go")
    until(lambda: child.process.poll() is not None, "it has run both steps")

    workflow.refresh_from_db()
    # The second body may get the error when it uses the database; then resume() retries its step.
    assert len(room.notes("ended")) == 1
    first = workflow.executions.get(step_name="ask")
    assert (first.state, first.outcome) == ("completed", "success")
    assert workflow.state == "finished"


def test_a_connection_lost_unnoticed_in_a_body_is_recorded(launch: Launcher, room: Room) -> None:
    """The body itself kills the session, so finalize is the first to notice."""
    workflow = Careless.start()
    launch.worker("--max-steps", "2", settings={"LEASE": 30}).finish()

    workflow.refresh_from_db()
    assert workflow.state == "finished"
    assert list(workflow.executions.order_by("pk").values_list("step_name", "state")) == [
        ("lose", "completed"),
        ("after", "completed"),
    ]
    assert len(room.notes()) == 2


def test_connections_lost_while_many_steps_run(launch: Launcher, room: Room) -> None:
    """Sessions are dropped repeatedly while steps start and end, and everything still completes."""
    workflows = [Chain.start() for _ in range(40)]
    child = launch.worker(
        "--threads", "2", "--poll-interval", "0.2", settings={"LEASE": 1, "MAX_CRASHES": 1000}
    )
    dropped = 0
    for _ in range(6):
        seen = len(room.notes())
        until(partial(_has_gone_on, room, seen), "it goes on", child=child)
        dropped += _drop_all_sessions()
    until(all_ended, "all have ended", child=child)
    child.signal(signal.SIGTERM)
    child.finish()

    assert dropped
    done = {(words[1], words[0]) for words in room.notes()}
    assert done == {
        (str(each.pk), name) for each in workflows for name in ("one", "two", "three", "four", "five")
    }
    assert set(Chain.objects.values_list("state", flat=True)) == {"finished"}


def _has_gone_on(room: Room, since: int) -> bool:
    return len(room.notes()) > since + 10 or all_ended()


def all_ended() -> bool:
    return not StepExecution.objects.active().exists()


@pytest.mark.only_on("mysql", "mariadb", reason="PostgreSQL ends no idle sessions unless it is told to")
def test_idle_sessions_ended_by_the_server(launch: Launcher, room: Room) -> None:
    Chain.start()
    # Between polls and between beats, every session exceeds the idle timeout.
    child = launch.worker(
        "--poll-interval",
        "2.5",
        settings={"LEASE": 6},
        environment={"GENEVA_TEST_INIT_COMMAND": "SET SESSION wait_timeout = 1"},
    )
    until(lambda: len(room.notes()) == 5, "the first workflow has ended", child=child)
    until(lambda: not _sessions(), "the server has ended the idle sessions", child=child)
    Chain.start()
    until(lambda: len(room.notes()) == 10, "the second one too", child=child)
    child.signal(signal.SIGTERM)
    child.finish()
