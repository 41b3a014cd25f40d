"""The default: the tables are the queue, and ``geneva_worker`` reads it."""

from __future__ import annotations

from typing import Any

from django.db import connections

from geneva_drive.dispatchers.base import Dispatcher

__all__ = ["CHANNEL", "Worker"]

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
