"""When a step is due: elapsed time by the database's clock, whatever the time zones and hosts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import override_settings
from django.utils import timezone

from geneva_drive import StepExecution, Workflow, clock, step
from geneva_drive.testing import assert_state, run_due, run_next_step, travel
from tests.execution.support import Free, active, history, run, trace

DAY = timedelta(days=1)

pytestmark = pytest.mark.django_db


class ThreeDays(Free):
    @step(wait=3 * DAY)
    def later(self) -> None:
        trace.append("later")

    @step
    def after(self) -> None:
        trace.append("after")


def test_a_wait_counts_from_when_the_step_was_scheduled() -> None:
    before = clock.now("default")
    workflow = ThreeDays.start()

    row = active(workflow)
    assert before + 3 * DAY <= clock.utc(row.scheduled_for) <= clock.now("default") + 3 * DAY
    assert clock.utc(row.scheduled_for) - clock.utc(row.created_at) == 3 * DAY


def test_paused_on_day_one_and_resumed_on_day_two_it_is_due_on_day_three() -> None:
    workflow = ThreeDays.start()
    due = active(workflow).scheduled_for
    with travel(DAY):
        workflow.pause()
    with travel(2 * DAY):
        workflow.resume()
        assert (active(workflow).scheduled_for, active(workflow).state) == (due, "scheduled")
        assert run_due() == 0
    with travel(3 * DAY):
        assert run_due() == 2
    assert_state(workflow, "finished")
    assert trace == ["later", "after"]


def test_paused_on_day_one_and_resumed_on_day_five_it_is_due_at_once() -> None:
    workflow = ThreeDays.start()
    with travel(DAY):
        workflow.pause()
    with travel(4 * DAY):
        # Overdue, and paused: nothing happens.
        assert run_due() == 0
        assert run(workflow) == 0
    with travel(5 * DAY):
        workflow.resume()
        assert run_due() == 2
    assert len(history(workflow)) == 2


@pytest.mark.parametrize("step_wait", [timedelta(0), timedelta(microseconds=1), timedelta(milliseconds=999)])
def test_fractions_of_a_second_are_kept_and_a_due_step_runs_at_once(step_wait: timedelta) -> None:
    class Soon(Free):
        @step(wait=step_wait)
        def soon(self) -> None:
            trace.append("soon")

    workflow = Soon.start()
    row = active(workflow)

    assert clock.utc(row.scheduled_for) - clock.utc(row.created_at) == step_wait
    with travel(step_wait):
        assert run(workflow) == 1
    assert trace == ["soon"]


def test_a_step_without_a_wait_runs_exactly_once() -> None:
    class Now0(Free):
        @step(wait=timedelta(0))
        def now(self) -> None:
            trace.append("now")

    workflow = Now0.start()

    assert run_due() == 1
    assert run_due() == 0
    assert trace == ["now"]
    assert_state(workflow, "finished")


# In Amsterdam clocks went back on 26 October 2025 at 03:00, and forward on 30 March 2025 at 02:00.
CHANGES = [
    datetime(2025, 10, 25, 22, 0, tzinfo=UTC),
    datetime(2025, 10, 26, 0, 30, tzinfo=UTC),  # the first 02:30
    datetime(2025, 10, 26, 1, 30, tzinfo=UTC),  # the second 02:30
    datetime(2025, 3, 29, 23, 0, tzinfo=UTC),
    datetime(2025, 3, 30, 0, 59, 59, 999999, tzinfo=UTC),
]


@pytest.mark.parametrize("begin", CHANGES)
@pytest.mark.parametrize("wait", [timedelta(hours=1), DAY, timedelta(minutes=30)])
@pytest.mark.parametrize("use_tz", [True, False])
def test_a_wait_is_elapsed_time_across_a_change_of_clocks(
    begin: datetime, wait: timedelta, use_tz: bool
) -> None:
    with override_settings(USE_TZ=use_tz):

        class Daily(Free):
            @step(wait=wait)
            def first(self) -> None:
                pass

            @step(wait=wait)
            def second(self) -> None:
                pass

        with travel(begin - clock.now("default")):
            at = begin if use_tz else timezone.make_naive(begin)
            workflow = Daily.start(at=at)
            first = active(workflow)
            assert clock.utc(first.scheduled_for) == begin + wait
            run_next_step(workflow)
            second = active(workflow)
        begun = StepExecution.objects.get(pk=first.pk).finished_at
        assert begun is not None
        assert clock.utc(second.scheduled_for) - clock.utc(begun) == wait


@pytest.mark.parametrize(
    "zone", ["Pacific/Kiritimati", "America/St_Johns", "UTC", "Asia/Kathmandu"], ids=lambda zone: zone
)
def test_the_projects_time_zone_has_no_effect(zone: str) -> None:
    with override_settings(TIME_ZONE=zone), timezone.override(ZoneInfo(zone)):
        workflow = ThreeDays.start()
        row = active(workflow)
        assert clock.utc(row.scheduled_for) - clock.utc(row.created_at) == 3 * DAY
        with travel(3 * DAY):
            assert run_due() == 2


@override_settings(USE_TZ=False)
def test_without_time_zones_a_whole_workflow_with_waits_works() -> None:
    class WithoutZones(Free):
        @step(wait=DAY)
        def one(self) -> None:
            trace.append(self.created_at.tzinfo)
            if len(trace) == 1:
                self.reattempt(wait=timedelta(hours=1))

        @step(wait=timedelta(hours=2))
        def two(self) -> None:
            pass

    workflow = WithoutZones.start(at=datetime(2030, 6, 1, 12, 0))
    assert active(workflow).scheduled_for == datetime(2030, 6, 2, 12, 0)
    workflow.pause().resume()

    while workflow.state == "ready":
        run_next_step(workflow)

    assert trace == [None, None]
    assert [outcome for _, _, outcome in history(workflow)] == ["reattempted", "success", "success"]


NAIVE = """
import django
django.setup()
from datetime import timedelta
from django.conf import settings
from geneva_drive.testing import run_next_step
from tests.testapp.workflows import Heroless
assert settings.USE_TZ is False
workflow = Heroless.start(job_options={"wait": timedelta(days=1)})
run_next_step(workflow)
print(workflow.pk)
"""


@pytest.mark.django_db(transaction=True)
def test_processes_with_and_without_time_zones_share_rows(
    child_environment: Callable[[], dict[str, str]],
) -> None:
    environment = {**child_environment(), "GENEVA_TEST_USE_TZ": "0"}
    done = subprocess.run(
        [sys.executable, "-c", NAIVE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    workflow = Workflow.objects.get(pk=int(done.stdout))
    first, second = workflow.executions.order_by("pk")
    for row in (first, second):
        assert clock.utc(row.scheduled_for) - clock.utc(row.created_at) == DAY
    # It travelled ahead to run the first.
    assert second.created_at == first.finished_at
    assert clock.now("default") < clock.utc(second.created_at) < clock.now("default") + DAY
    with travel(2 * DAY):
        assert run_due() == 1
    assert_state(workflow, "finished")


def test_waits_count_from_start_at() -> None:
    at = datetime(2031, 1, 1, tzinfo=UTC)

    workflow = ThreeDays.start(at=at)

    assert clock.utc(active(workflow).scheduled_for) == at + 3 * DAY


def test_wait_until_is_a_moment_and_a_past_one_means_now() -> None:
    class Until(Free):
        @step
        def only(self) -> None:
            pass

    moment = datetime(2031, 1, 1, tzinfo=UTC)
    ahead = Until.start(job_options={"wait_until": moment})
    passed = Until.start(job_options={"wait_until": datetime(2001, 1, 1, tzinfo=UTC)})

    assert clock.utc(active(ahead).scheduled_for) == moment
    assert clock.utc(active(passed).scheduled_for) <= clock.now("default")


@pytest.mark.only_on("postgresql", "mysql", "mariadb", reason="on SQLite the host's clock is the database's")
@pytest.mark.parametrize("off", [timedelta(minutes=10), timedelta(minutes=-10)])
def test_a_host_with_a_wrong_clock_uses_the_databases(
    off: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + off

    monkeypatch.setattr(clock, "datetime", Wrong)
    monkeypatch.setattr(timezone, "now", lambda: datetime.now(UTC) + off)
    clock.reset()
    workflow = ThreeDays.start()

    # By the database's clock: due in three days, plus or minus the duration of this test.
    rows = StepExecution.objects.filter(workflow_id=workflow.pk)
    minute = timedelta(minutes=1)
    assert rows.filter(scheduled_for__gt=Now() + 3 * DAY - minute).exists()
    assert rows.filter(scheduled_for__lt=Now() + 3 * DAY + minute).exists()
    assert run_due() == 0
    with travel(3 * DAY):
        assert run_due() == 2
    assert Workflow.objects.filter(transitioned_at__lt=Now() + 3 * DAY + minute).exists()


@pytest.mark.django_db(transaction=True)
def test_the_sessions_time_zone_has_no_effect() -> None:
    if connection.vendor == "sqlite":
        assert abs(clock.now("default") - datetime.now(UTC)) < timedelta(minutes=1)
        return
    statement = (
        "SET TIME ZONE 'Pacific/Kiritimati'"
        if connection.vendor == "postgresql"
        else ("SET time_zone = '+13:00'")
    )
    clock.reset()
    before = clock.now("default")
    with connection.cursor() as cursor:
        cursor.execute(statement)
    try:
        clock.reset()
        assert abs(clock.now("default") - before) < timedelta(minutes=1)
    finally:
        connection.close()
        clock.reset()
