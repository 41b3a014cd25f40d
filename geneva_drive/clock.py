"""The clock of the whole library: the database's, since hosts may disagree about the time.

The offset between the database's clock and the host's monotonic clock is measured with one small query per
process and alias, and renewed from time to time (a worker renews it with each heartbeat, on the heartbeat's
connection). On SQLite it is the host's clock.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from django.conf import settings as django_settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

_RENEW_AFTER = 600.0
"""Seconds. A host's clock drifts by far less than a tenth of a second in that time."""

_EPOCH_SECONDS = {
    # clock_timestamp() is the time of the statement, not of the transaction.
    "postgresql": "SELECT EXTRACT(EPOCH FROM clock_timestamp())",
    # In UTC, independent of the session's time zone.
    "mysql": "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) / 1000000",
}

_measured: dict[str, tuple[float, float]] = {}
"""Alias -> (the database's epoch seconds minus the host's ticks, the ticks at that moment)."""

_travelled = timedelta(0)
"""Added by `geneva_drive.testing.travel`."""


# On Linux the monotonic clock stops while the machine is suspended; the boot-time clock does not.
if hasattr(time, "CLOCK_BOOTTIME"):

    def ticks() -> float:
        """Return seconds, independent of the wall clock."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:  # pragma: no cover - not on Linux
    ticks = time.monotonic


def now(using: str | None = None) -> datetime:
    """Return the time of the database behind ``using``, aware, in UTC."""
    alias = using or DEFAULT_DB_ALIAS
    connection = connections[alias]
    if connection.vendor not in _EPOCH_SECONDS:
        return datetime.now(UTC) + _travelled
    moment = ticks()
    known = _measured.get(alias)
    if known is None or moment - known[1] > _RENEW_AFTER:
        known = measure(connection)
        moment = ticks()
    return datetime.fromtimestamp(known[0] + moment, UTC) + _travelled


def stopwatch() -> float:
    """Return seconds for measuring durations; `travel` in tests moves them too."""
    return ticks() + _travelled.total_seconds()


def measure(connection: BaseDatabaseWrapper) -> tuple[float, float]:
    """Measure a server's clock over ``connection`` and remember it for its alias."""
    before = ticks()
    with connection.cursor() as cursor:
        cursor.execute(_EPOCH_SECONDS[connection.vendor])
        seconds = float(cursor.fetchone()[0])
    after = ticks()
    # The answer was read about half way through the round trip.
    _measured[connection.alias] = (seconds - (before + after) / 2, after)
    return _measured[connection.alias]


def reset() -> None:
    """Forget what was measured, for tests that change databases."""
    _measured.clear()


def utc(value: datetime) -> datetime:
    """Return a field's value, aware or in local time by ``USE_TZ``, as aware UTC."""
    if timezone.is_naive(value):
        value = timezone.make_aware(value, timezone.get_default_timezone())
    return value.astimezone(UTC)


def local(value: datetime) -> datetime:
    """Return an aware time as a field's value: aware, or naive without ``USE_TZ``."""
    if django_settings.USE_TZ:
        return value
    # make_naive sets ``fold``, which tells apart the two hours when summer time ends.
    return timezone.make_naive(value, timezone.get_default_timezone())


def elapsed(value: datetime | None, using: str | None = None) -> timedelta:
    """Return the time since a field's value; zero for None."""
    return timedelta(0) if value is None else now(using) - utc(value)
