"""One clock: the database's.

Hosts disagree about the time; the rows must not. ``now()`` is the clock of the database that holds
the rows, whatever the host's wall clock says: its distance from the host's monotonic clock is
measured with one small query per process and alias and renewed now and then (a worker renews it with
each heartbeat, on the heartbeat's own connection). On SQLite the host's clock is the database's.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from django.conf import settings as django_settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

__all__ = ["local", "measure", "now", "stopwatch", "ticks", "utc"]

_RENEW_AFTER = 600.0
"""Seconds: quartz drifts by far less than a tenth of a second in that time."""

_EPOCH_SECONDS = {
    # The statement's own time, not the transaction's: clock_timestamp() moves inside a transaction.
    "postgresql": "SELECT EXTRACT(EPOCH FROM clock_timestamp())",
    # In UTC, so that the session's time zone and its summer time play no part.
    "mysql": "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) / 1000000",
}

_measured: dict[str, tuple[float, float]] = {}
"""Alias -> (the database's epoch seconds minus the host's ticks, the ticks at that moment)."""

_travelled = timedelta(0)
"""What the testing kit adds."""


# The boot-time clock goes on while a machine is suspended; the monotonic one, on Linux, does not.
if hasattr(time, "CLOCK_BOOTTIME"):

    def ticks() -> float:
        """Return seconds that no change of the wall clock moves."""
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
    """Return seconds for measuring how long something takes; the testing kit moves them, too."""
    return ticks() + _travelled.total_seconds()


def measure(connection: BaseDatabaseWrapper) -> tuple[float, float]:
    """Measure a server's clock over ``connection`` and remember it for its alias."""
    before = ticks()
    with connection.cursor() as cursor:
        cursor.execute(_EPOCH_SECONDS[connection.vendor])
        seconds = float(cursor.fetchone()[0])
    after = ticks()
    # The answer was true about half way through the round trip.
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
    """Return an aware time the way the project's ``USE_TZ`` wants a field's value."""
    if django_settings.USE_TZ:
        return value
    # make_naive keeps ``fold``, so the hour that comes twice in autumn stays two hours.
    return timezone.make_naive(value, timezone.get_default_timezone())


def elapsed(value: datetime | None, using: str | None = None) -> timedelta:
    """Return how long ago a field's value was; zero for None."""
    return timedelta(0) if value is None else now(using) - utc(value)
