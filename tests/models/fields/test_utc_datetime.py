"""The column stores UTC on every database, also with USE_TZ off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from django.db import connection, models
from django.db.models import ExpressionWrapper, F, Max, Min
from django.test import override_settings
from django.utils import timezone

from geneva_drive import clock
from geneva_drive.models import Workflow, columns
from geneva_drive.models.fields import UTCDateTimeField

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.django_db

AMSTERDAM = ZoneInfo("Europe/Amsterdam")
HALF_HOUR = timedelta(minutes=30)


def half_hours(first: datetime, count: int) -> list[datetime]:
    return [first + number * HALF_HOUR for number in range(count)]


# From an hour before each clock change to two hours after, and one with microseconds.
AUTUMN = half_hours(datetime(2024, 10, 26, 23, 30, tzinfo=UTC), 7)
SPRING = half_hours(datetime(2024, 3, 30, 23, 30, tzinfo=UTC), 7)
MOMENTS = sorted([*AUTUMN, *SPRING, datetime(2024, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)])


@pytest.fixture(params=["USE_TZ", "USE_TZ, connection in local time", "no USE_TZ"])
def use_tz(request: pytest.FixtureRequest) -> Iterator[bool]:
    wanted = request.param != "no USE_TZ"
    zone = "Europe/Amsterdam" if "local" in request.param else None
    before = connection.settings_dict["TIME_ZONE"]
    connection.settings_dict["TIME_ZONE"] = zone
    with override_settings(USE_TZ=wanted, TIME_ZONE="Europe/Amsterdam"):
        yield wanted
        connection.settings_dict["TIME_ZONE"] = before
    # Leaving the settings resets what the connection cached for both.


def row(moment: datetime) -> Workflow:
    workflow = Workflow(type="shop.Order", created_at=moment, updated_at=moment)
    models.Model.save(workflow, force_insert=True)
    return workflow


def stored() -> list[datetime]:
    """Return the raw value of the column in UTC, without the field."""
    utc = {
        "postgresql": "to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')",
        "mysql": "CAST(created_at AS char)",
        "sqlite": "CAST(created_at AS text)",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {utc} FROM {columns.WORKFLOW_TABLE} ORDER BY created_at")
        return [datetime.fromisoformat(text).replace(tzinfo=UTC) for (text,) in cursor.fetchall()]


def local(moment: datetime) -> datetime:
    """Return the value as an attribute has it: naive local time with its fold if USE_TZ is off."""
    return clock.local(moment)


def test_the_column_is_utc(use_tz: bool) -> None:
    for moment in MOMENTS:
        row(moment)

    assert stored() == MOMENTS


def test_values_are_read_back_as_the_same_moment(use_tz: bool) -> None:
    for moment in MOMENTS:
        row(moment)

    for workflow, moment in zip(Workflow.objects.order_by("created_at"), MOMENTS, strict=True):
        value = workflow.created_at
        assert timezone.is_aware(value) is use_tz
        assert clock.utc(value) == moment
        if not use_tz:
            assert (value, value.fold) == (local(moment), local(moment).fold)


def test_a_value_that_was_read_is_written_as_the_same_moment(use_tz: bool) -> None:
    for moment in MOMENTS:
        row(moment)

    for workflow in Workflow.objects.all():
        Workflow._base_manager.filter(pk=workflow.pk).update(created_at=workflow.created_at)
    assert stored() == MOMENTS

    workflows = list(Workflow.objects.all())
    Workflow._base_manager.bulk_update(workflows, ["created_at"])
    assert stored() == MOMENTS


def test_filters_compare_moments(use_tz: bool) -> None:
    for moment in MOMENTS:
        row(moment)

    for place, moment in enumerate(MOMENTS, start=1):
        for value in (moment, moment.astimezone(AMSTERDAM), local(moment)):
            assert Workflow.objects.filter(created_at__lte=value).count() == place
            assert Workflow.objects.filter(created_at__gt=value).count() == len(MOMENTS) - place
            assert Workflow.objects.filter(created_at=value).count() == 1
            assert Workflow.objects.filter(created_at__in=[value]).count() == 1
            assert Workflow.objects.filter(created_at__range=(MOMENTS[0], value)).count() == place


def test_rows_are_ordered_by_moment(use_tz: bool) -> None:
    for moment in reversed(MOMENTS):
        row(moment)

    found = Workflow.objects.order_by("created_at").values_list("created_at", flat=True)
    assert [clock.utc(value) for value in found] == MOMENTS


def test_aggregates_and_expressions_return_moments(use_tz: bool) -> None:
    for moment in AUTUMN:
        row(moment)

    found = Workflow.objects.aggregate(first=Min("created_at"), last=Max("created_at"))
    assert {name: clock.utc(value) for name, value in found.items()} == {
        "first": AUTUMN[0],
        "last": AUTUMN[-1],
    }
    later = ExpressionWrapper(F("created_at") + timedelta(hours=1), output_field=UTCDateTimeField())
    values = Workflow.objects.order_by("created_at").annotate(later=later).values_list("later", flat=True)
    assert [clock.utc(value) for value in values] == [moment + timedelta(hours=1) for moment in AUTUMN]

    Workflow._base_manager.update(created_at=F("created_at") + timedelta(hours=1))
    assert stored() == [moment + timedelta(hours=1) for moment in AUTUMN]


def test_elapsed_time_is_correct_across_a_clock_change(use_tz: bool) -> None:
    """A wait of 24 hours that starts the day before ends after 24 hours, not 23 or 25."""
    for eve in (datetime(2024, 10, 26, 12, tzinfo=UTC), datetime(2024, 3, 30, 12, tzinfo=UTC)):
        workflow = row(eve + timedelta(hours=24))
        mine = Workflow.objects.filter(pk=workflow.pk)

        assert not mine.filter(created_at__lte=eve + timedelta(hours=23, minutes=59)).exists()
        assert mine.filter(created_at__lte=eve + timedelta(hours=24)).exists()


def test_none_text_and_dates_are_handled(use_tz: bool) -> None:
    row(MOMENTS[0])

    assert Workflow.objects.get().started_at is None
    assert Workflow.objects.filter(created_at__gte="2024-03-30T23:30:00+00:00").exists()
    assert not Workflow.objects.filter(created_at__gt="2024-03-30T23:30:00+00:00").exists()
    if not use_tz:
        assert Workflow.objects.filter(created_at__gte="2024-03-31").count() == 1
