"""No transaction is open while a body runs: schema changes do not wait for slow steps."""

from __future__ import annotations

import signal

import pytest
from django.db import connection, transaction

from geneva_drive.models import StepExecution
from tests.acceptance.processes import Launcher, until
from tests.acceptance.room import Room
from tests.acceptance.workshop.workflows import Asking

_LIMIT = {
    "postgresql": "SET LOCAL lock_timeout = '2s'",
    "mysql": "SET SESSION lock_wait_timeout = 2",
    "sqlite": "PRAGMA busy_timeout = 2000",
}


def test_a_table_can_be_altered_during_a_long_step(launch: Launcher, room: Room) -> None:
    workflow = Asking.start()
    child = launch.worker("--max-steps", "2", "--poll-interval", "0.1")
    until(lambda: room.notes("began"), "the body has begun", child=child)

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_LIMIT[connection.vendor])
        for table in ("workflow", "stepexecution"):
            cursor.execute(f"ALTER TABLE geneva_drive_{table} ADD COLUMN added_later integer NULL")
    try:
        room.allow("go")
        child.finish()
        workflow.refresh_from_db()
        assert workflow.state == "finished"
        assert not StepExecution.objects.active().exists()
    finally:
        connection.close()
        with connection.cursor() as cursor:
            for table in ("workflow", "stepexecution"):
                cursor.execute(f"ALTER TABLE geneva_drive_{table} DROP COLUMN added_later")


@pytest.mark.only_on("postgresql", reason="only PostgreSQL tells of open transactions by session")
def test_a_worker_has_no_open_transaction_during_a_step(launch: Launcher, room: Room) -> None:
    Asking.start()
    child = launch.worker("--threads", "2")
    until(lambda: room.notes("began"), "the body has begun", child=child)

    def open_transactions() -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
            )
            return int(cursor.fetchone()[0])

    # Polls and beats have short transactions; one around a body would stay open.
    until(lambda: open_transactions() == 0, "no transaction is open", child=child)
    room.allow("go")
    until(lambda: room.notes("after"), "it goes on", child=child)
    child.signal(signal.SIGTERM)
    child.finish()
