"""Dispatchers without a job system: ``geneva_worker`` reads the tables, or the committing thread runs the step."""

from __future__ import annotations

from typing import Any

from django.db import connections

from geneva_drive.dispatchers.base import CHANNEL, Dispatcher
from geneva_drive.dispatchers.running import run


class Worker(Dispatcher):
    """The default: ``geneva_worker`` reads the tables. On PostgreSQL it is woken for what is due."""

    supports_delays = True
    supports_priorities = True
    supports_queues = True
    same_transaction = True
    remembers = False

    def enqueues_inside(self, using: str) -> bool:
        """False: workers are woken after the commit, when they can see the row."""
        del using
        return False

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        """Wake idle workers if the execution is due now; later ones they find by themselves."""
        del execution_id
        connection = connections[options["using"]]
        if connection.vendor == "postgresql" and not options["delay"]:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, options["queue"]])
        return None


class Immediate(Dispatcher):
    """Run what is due in the thread that committed it. Waits stay scheduled.

    Steps that a running step schedules run after it, not inside it. A step's exception is recorded and logged,
    and does not reach the caller. Waits run in a worker, or with the next ``geneva_housekeeping`` after their
    time.

    Parameters
    ----------
    heartbeat
        Whether the process writes a heartbeat, so that its steps are recovered soon after it is killed. Without
        one that takes ``STUCK_AFTER``; for test suites, whose database comes and goes.
    """

    supports_queues = True

    def __init__(self, *, heartbeat: bool = True, **options: Any) -> None:
        super().__init__(**{"inline_continuation_for": None, **options})
        self.heartbeat = heartbeat

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        """Run the execution now, or after the one that this thread is running."""
        run(execution_id, options["using"], kind="immediate", heartbeat=self.heartbeat)
        return None
