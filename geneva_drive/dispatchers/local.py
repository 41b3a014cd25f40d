"""The default: the tables are the queue, and ``geneva_worker`` reads it."""

from __future__ import annotations

from typing import Any

from django.db import connections

from geneva_drive.dispatchers.base import Dispatcher
from geneva_drive.dispatchers.running import run

CHANNEL = "geneva_drive"
"""PostgreSQL notifies listening workers on this channel."""


class Worker(Dispatcher):
    """Nothing is carried: a worker finds the row. On PostgreSQL it is woken for one that is due."""

    supports_delays = True
    supports_priorities = True
    supports_queues = True
    same_transaction = True
    remembers = False

    def enqueues_inside(self, using: str) -> bool:
        """False: the row is the job. Workers are woken after the commit, when they can see it."""
        del using
        return False

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        """Wake idle workers if the row is due now; what is due later they find by themselves."""
        del execution_id
        connection = connections[options["using"]]
        if connection.vendor == "postgresql" and not options["delay"]:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, options["queue"]])
        return None


class Immediate(Dispatcher):
    """Run what is due in the thread that committed it. Waits are left scheduled.

    A run that schedules further work does not recurse: what comes while one is running is queued behind
    it. A step's exception is recorded and logged, and does not reach the caller. What has to wait runs
    with the next ``geneva_housekeeping`` after its time, or in a worker.

    Parameters
    ----------
    heartbeat
        Whether the process gets a heartbeat, so that what it leaves behind when it is killed is recovered
        soon. Off, that takes ``STUCK_AFTER``; for test suites, whose database comes and goes.
    """

    supports_queues = True

    def __init__(self, *, heartbeat: bool = True, **options: Any) -> None:
        super().__init__(**{"inline_continuation_for": None, **options})
        self.heartbeat = heartbeat

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        """Run the execution now, or behind the one that this thread is running."""
        run(execution_id, options["using"], kind="immediate", heartbeat=self.heartbeat)
        return None
