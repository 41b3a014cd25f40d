"""The figures are correct, need a constant number of queries, and become gauges."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from prometheus_client import CollectorRegistry, generate_latest

from geneva_drive import ExceptionPolicy, Workflow, clock, metrics, step
from geneva_drive.conf import settings as geneva
from geneva_drive.models import Process, StepExecution
from geneva_drive.reports.figures import Figures, figures
from geneva_drive.testing import run_next_step, run_to_end, travel

pytestmark = pytest.mark.django_db


class Counted(Workflow):
    may_proceed_without_hero = True

    class Meta:
        app_label = "testapp"

    @step(queue="mail", wait=timedelta(hours=1), on_exception=ExceptionPolicy("reattempt", max_reattempts=1))
    def first(self) -> None:
        if self.metadata == "fails":
            raise OSError

    @step
    def second(self) -> None: ...


class AlsoCounted(Workflow):
    may_proceed_without_hero = True

    class Meta:
        app_label = "testapp"

    @step
    def only(self) -> None: ...


def park(workflow: Workflow, since: timedelta) -> None:
    """Let a workflow's execution wait for a signal, as prepare() would."""
    moment = clock.local(clock.now() - since)
    workflow.executions.update(state="waiting", waiting_since=moment)


def process(age: timedelta) -> Process:
    moment = clock.local(clock.now() - age)
    return Process.objects.create(
        id=uuid4(), hostname="here", pid=1, kind="worker", started_at=moment, heartbeat_at=moment
    )


def test_an_empty_database() -> None:
    found = figures()

    assert found == Figures({}, 0, 0, 0, timedelta(0), 0)
    assert found.paused_ratio == 0


def test_workflows_by_type_and_state() -> None:
    for _ in range(2):
        run_to_end(Counted.start())
    Counted.start()
    Counted.start().pause()
    Counted.start().cancel()
    AlsoCounted.start().pause()
    AlsoCounted.start()

    found = figures()

    assert found.workflows == {
        "testapp.Counted": {"finished": 2, "ready": 1, "paused": 1, "canceled": 1},
        "testapp.AlsoCounted": {"paused": 1, "ready": 1},
    }
    assert (found.ongoing, found.paused, found.paused_ratio) == (4, 2, 0.5)


def test_overdue_steps() -> None:
    due = [AlsoCounted.start(), AlsoCounted.start(job_options={"priority": 7}), Counted.start()]
    AlsoCounted.start().pause()
    assert figures().overdue == 2

    with travel(timedelta(hours=3)):
        AlsoCounted.start()
        found = figures()
        assert found.overdue == 4
        assert timedelta(hours=3) <= found.oldest_overdue < timedelta(hours=3, minutes=5)
        for workflow in due:
            workflow.cancel()
        found = figures()
        assert found.overdue == 1
        assert timedelta(0) <= found.oldest_overdue < timedelta(minutes=5)


def test_waiting_steps_and_how_long_they_wait() -> None:
    park(Counted.start(), timedelta(hours=1))
    park(Counted.start(), geneva.WAITING_TOO_LONG - timedelta(minutes=5))
    park(AlsoCounted.start(), geneva.WAITING_TOO_LONG + timedelta(minutes=5))

    found = figures()

    assert (found.waiting, found.waiting_too_long, found.overdue) == (3, 1, 0)


def test_live_processes() -> None:
    process(timedelta(0))
    process(geneva.LEASE / 2)
    process(geneva.LEASE * 2)

    assert figures().live_processes == 2


def test_the_number_of_queries_depends_on_queues_and_not_on_rows() -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            figures()
        return len(queries)

    figures()
    AlsoCounted.start()
    few = cost()
    for _ in range(30):
        AlsoCounted.start()
    assert cost() == few


# -- as metrics


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    registry = CollectorRegistry()
    installed = metrics.install(registry, durations=(0.5, 5.0))
    yield registry
    installed.uninstall()


def value(registry: CollectorRegistry, name: str, **labels: Any) -> float | None:
    return registry.get_sample_value(f"geneva_drive_{name}", labels)


def test_installing_makes_no_query() -> None:
    with CaptureQueriesContext(connection) as queries:
        metrics.install(CollectorRegistry()).uninstall()

    assert len(queries) == 0


def test_installing_twice_is_refused() -> None:
    registry = CollectorRegistry()
    installed = metrics.install(registry)
    try:
        with pytest.raises(ValueError, match="Duplicated"):
            metrics.install(registry)
    finally:
        installed.uninstall()


def test_the_figures_are_gauges(registry: CollectorRegistry) -> None:
    AlsoCounted.start().pause()
    AlsoCounted.start()
    park(Counted.start(), geneva.WAITING_TOO_LONG * 2)
    process(timedelta(0))

    with travel(timedelta(minutes=10)):
        process(timedelta(0))
        assert value(registry, "workflows", type="testapp.AlsoCounted", state="paused") == 1
        assert value(registry, "workflows", type="testapp.Counted", state="ready") == 1
        assert value(registry, "paused_ratio") == pytest.approx(1 / 3)
        assert value(registry, "waiting") == 1
        assert value(registry, "waiting_too_long") == 1
        assert value(registry, "overdue") == 1
        seconds = value(registry, "oldest_overdue_seconds")
        assert seconds is not None
        assert 600 <= seconds < 900
        assert value(registry, "live_processes") == 1


@pytest.mark.django_db(transaction=True)
def test_counters_and_durations_cover_this_process(registry: CollectorRegistry) -> None:
    run_to_end(Counted.start())
    run_to_end(Counted.start(metadata="fails"), raise_errors=False)

    assert value(registry, "workflows_started_total", type="testapp.Counted") == 2
    of_first = {"type": "testapp.Counted", "step": "first"}
    assert value(registry, "steps_total", outcome="success", **of_first) == 1
    assert value(registry, "steps_total", outcome="reattempted", **of_first) == 1
    assert value(registry, "steps_total", outcome="failed", **of_first) == 1
    assert value(registry, "steps_total", outcome="success", type="testapp.Counted", step="second") == 1
    assert value(registry, "step_duration_seconds_count", **of_first) == 3
    assert value(registry, "step_duration_seconds_bucket", le="5.0", **of_first) == 3


def test_a_late_result_is_counted_as_fenced(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(workflow: Any) -> None:
        StepExecution.objects.filter(workflow_id=workflow.pk).update(attempt_token=uuid4())

    monkeypatch.setattr(AlsoCounted, "only", moved)
    run_next_step(AlsoCounted.start())

    labels = {"type": "testapp.AlsoCounted", "step": "only"}
    assert value(registry, "steps_total", outcome="fenced", **labels) == 1


def test_the_served_text_is_readable(registry: CollectorRegistry) -> None:
    run_to_end(AlsoCounted.start())

    text = generate_latest(registry).decode()

    assert "# TYPE geneva_drive_workflows gauge" in text
    assert 'geneva_drive_workflows{state="finished",type="testapp.AlsoCounted"} 1.0' in text
    assert "# TYPE geneva_drive_step_duration_seconds histogram" in text


def test_uninstalled_metrics_stop_counting() -> None:
    registry = CollectorRegistry()
    installed = metrics.install(registry)
    installed.uninstall()

    AlsoCounted.start()

    assert value(registry, "workflows_started_total", type="testapp.AlsoCounted") is None
    assert installed.started.labels("testapp.AlsoCounted")._value.get() == 0
