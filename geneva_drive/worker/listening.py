"""Wake the worker by PostgreSQL's LISTEN, on a connection of its own; on other databases it polls."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any

from django.db import connections

from geneva_drive.dispatchers.base import CHANNEL

logger = logging.getLogger("geneva_drive.worker")


def can_listen(using: str) -> bool:
    """Whether the database can wake a worker: PostgreSQL through psycopg 3."""
    if connections[using].vendor != "postgresql":
        return False
    try:
        from django.db.backends.postgresql.psycopg_any import is_psycopg3
    except ImportError:
        return False
    return bool(is_psycopg3)


class Listener(threading.Thread):
    """Sets ``wake`` whenever an execution that is due was written to one of the queues."""

    def __init__(self, using: str, queues: list[str] | None, wake: threading.Event) -> None:
        super().__init__(name="geneva-listener", daemon=True)
        self._using = using
        self._queues = queues
        self._wake = wake
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        pause = 0.5
        while not self._stopped.is_set():
            connection = connections[self._using].copy()
            try:
                with connection.cursor() as cursor:
                    cursor.execute(f"LISTEN {CHANNEL}")
                # For what was written before.
                self._wake.set()
                pause = 0.5
                self._listen(connection.connection)
            except Exception as error:  # noqa: BLE001 - retried whatever it was; the worker polls meanwhile
                logger.warning("LISTEN on %s failed (%s), retrying in %s s.", self._using, error, pause)
                self._stopped.wait(pause)
                pause = min(pause * 2, 30.0)
            finally:
                with contextlib.suppress(Exception):
                    connection.close()

    def _listen(self, raw: Any) -> None:
        while not self._stopped.is_set():
            for notification in raw.notifies(timeout=1.0):  # then the loop checks whether to stop
                if self._queues is None or notification.payload in self._queues:
                    self._wake.set()
                if self._stopped.is_set():
                    return
