"""Connections that a server or a pooler has dropped while nobody used them."""

from __future__ import annotations

from django.db import connections

__all__ = ["STALE_AFTER", "drop_dead_connections"]

STALE_AFTER = 1.0
"""Seconds without use after which a thread tries its connections before a body gets them."""


def drop_dead_connections() -> None:
    """Close this thread's connections that are dead, so that the next use makes new ones."""
    for connection in connections.all(initialized_only=True):
        if (
            connection.connection is not None
            and not connection.in_atomic_block
            and not connection.is_usable()
        ):
            connection.close()
