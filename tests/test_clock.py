"""One clock: the database's."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from geneva_drive import clock, testing

AMSTERDAM = ZoneInfo("Europe/Amsterdam")


@pytest.fixture(autouse=True)
def _measured_anew() -> Any:
    clock.reset()
    yield
    clock.reset()


def _database_time() -> datetime:
    sql = {
        "postgresql": "SELECT EXTRACT(EPOCH FROM clock_timestamp())",
        "mysql": "SELECT UNIX_TIMESTAMP(NOW(6))",
    }
    if connection.vendor == "sqlite":
        return datetime.now(UTC)
    with connection.cursor() as cursor:
        cursor.execute(sql[connection.vendor])
        return datetime.fromtimestamp(float(cursor.fetchone()[0]), UTC)


@pytest.mark.django_db
def test_it_is_the_time_of_the_database() -> None:
    before = _database_time()
    now = clock.now()
    after = _database_time()
    # Half a round trip on a possibly busy machine.
    slack = timedelta(seconds=5)
    assert before - slack <= now <= after + slack
    assert now.tzinfo is UTC


@pytest.mark.django_db
def test_it_advances_inside_a_transaction() -> None:
    with transaction.atomic():
        _database_time()
        first = clock.now()
        time.sleep(0.5)
        clock.reset()
        # The transaction's own time would still be that of its start.
        assert clock.now() > first


@pytest.mark.only_on("postgresql", "mysql", "mariadb", reason="on SQLite the host's clock is the database's")
@pytest.mark.django_db
def test_the_hosts_wall_clock_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is ten minutes ahead, before or after the measurement."""
    before = clock.now()

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(minutes=10)

    monkeypatch.setattr(time, "time", lambda: before.timestamp() + 600)
    monkeypatch.setattr(clock, "datetime", Ahead)
    assert clock.now() - before < timedelta(minutes=5)
    clock.reset()
    assert clock.now() - before < timedelta(minutes=5)


@pytest.mark.only_on("postgresql", "mysql", "mariadb", reason="on SQLite nothing is measured")
@pytest.mark.django_db
def test_it_is_measured_once_and_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    with CaptureQueriesContext(connection) as captured:
        clock.now()
        clock.now()
        assert len(captured) == 1
        ticks = clock.ticks()
        monkeypatch.setattr(clock, "ticks", lambda: ticks + 601)
        clock.now()
        assert len(captured) == 2


@pytest.mark.django_db
def test_the_sessions_time_zone_has_no_effect() -> None:
    before = clock.now()
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL TIME ZONE 'Asia/Tokyo'")
        elif connection.vendor == "mysql":
            cursor.execute("SET SESSION time_zone = '+09:00'")
        try:
            clock.reset()
            assert abs(clock.now() - before) < timedelta(minutes=5)
        finally:
            if connection.vendor == "mysql":
                cursor.execute("SET SESSION time_zone = '+00:00'")


@pytest.mark.django_db
def test_travel_moves_it_and_restores_it() -> None:
    before = clock.now()
    with testing.travel(timedelta(days=3)):
        assert abs(clock.now() - before - timedelta(days=3)) < timedelta(minutes=5)
    assert clock.now() - before < timedelta(minutes=5)


def test_aware_and_naive_values_become_utc(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Amsterdam"
    expected = datetime(2024, 7, 1, 10, 0, tzinfo=UTC)
    assert clock.utc(datetime(2024, 7, 1, 12, 0, tzinfo=AMSTERDAM)) == expected
    assert clock.utc(datetime(2024, 7, 1, 12, 0)) == expected


@pytest.mark.parametrize("zoned", [True, False])
def test_the_repeated_hour_stays_two_hours(settings: Any, zoned: bool) -> None:
    """In the night in which clocks go back, moments of both hours survive a round trip through a field."""
    settings.TIME_ZONE = "Europe/Amsterdam"
    settings.USE_TZ = zoned
    first = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
    second = datetime(2024, 10, 27, 1, 30, tzinfo=UTC)
    assert [clock.utc(clock.local(moment)) for moment in (first, second)] == [first, second]


@pytest.mark.django_db
def test_elapsed_is_measured_from_a_fields_value() -> None:
    assert clock.elapsed(None) == timedelta(0)
    ago = clock.elapsed(clock.local(clock.now() - timedelta(hours=1)))
    assert timedelta(hours=1) <= ago < timedelta(hours=1, minutes=5)


def test_ticks_never_go_back() -> None:
    seen = [clock.ticks() for _ in range(100)]
    assert seen == sorted(seen)
