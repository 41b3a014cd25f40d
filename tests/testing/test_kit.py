"""The kit that projects test their workflows with, in each kind of test case."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import TestCase, TransactionTestCase
from django.utils import timezone

from geneva_drive import InvalidStateError, StepExecution, StepNotDefinedError, Workflow, clock, step, testing
from geneva_drive.housekeeping import recover
from geneva_drive.models.querysets import StepExecutionQuerySet
from geneva_drive.models.records import Process
from tests.execution.support import Free, active, history, own_classes_forgotten, trace
from tests.testapp.models import Effect, Order

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parent.parent.parent
DAY = timedelta(days=1)


class Kit(Free):
    @step
    def one(self) -> None:
        Effect.objects.create(workflow=str(self.pk), step="one")

    @step(wait=3 * DAY)
    def two(self) -> None:
        trace.append(clock.now("default"))
        Effect.objects.create(workflow=str(self.pk), step="two")

    @step(wait=3 * DAY)
    def three(self) -> None:
        trace.append(clock.now("default"))


@pytest.fixture(autouse=True)
def _left_alone() -> Iterator[None]:
    trace.clear()
    with own_classes_forgotten():
        yield
    assert clock._travelled == timedelta(0)


class Common:
    """Run in both of Django's test cases, which differ in what a commit is."""

    def test_a_workflow_runs_to_its_end_without_waiting_for_commits(self) -> None:
        workflow = testing.run_to_end(Kit.start(Order.objects.create()))

        assert workflow.state == "finished"
        assert Effect.objects.count() == 2
        # Three days each, and no time at all.
        assert trace[1] - clock.now("default") + timedelta(minutes=5) >= 6 * DAY
        assert Process.objects.count() == 0
        testing.assert_state(workflow, "finished")

    def test_step_by_step_and_due(self) -> None:
        workflow = Kit.start()
        assert testing.run_due() == 1
        assert testing.run_due() == 0
        with testing.travel(3 * DAY):
            assert testing.run_due() == 1
            testing.run_next_step(workflow)
        testing.assert_step(workflow, "three", "completed", "success")

    def test_a_crash_and_its_recovery(self) -> None:
        workflow = Kit.start()
        with testing.crash_at("performed"):
            testing.run_next_step(workflow)
        testing.assert_step(workflow, "one", "in_progress")
        with testing.travel(timedelta(hours=2)):
            assert recover("default").recovered == 1
            testing.run_next_step(workflow)
        assert history(workflow)[:2] == [("one", "failed", "recovered"), ("one", "completed", "success")]


class TestInTestCase(Common, TestCase):
    pass


class TestInTransactionTestCase(Common, TransactionTestCase):
    pass


def test_run_next_step_runs_one_step_due_or_not_and_refreshes() -> None:
    workflow = Kit.start()

    assert testing.run_next_step(workflow) is workflow
    assert workflow.next_step_name == "two"
    testing.run_next_step(workflow)

    assert history(workflow) == [
        ("one", "completed", "success"),
        ("two", "completed", "success"),
        ("three", "scheduled", None),
    ]


@pytest.mark.parametrize("act", ["pause", "cancel"])
def test_run_next_step_explains_why_nothing_runs(act: str) -> None:
    workflow = Kit.start()
    getattr(Workflow.objects.get(pk=workflow.pk), act)()

    with pytest.raises(InvalidStateError, match=r"paused|canceled"):
        testing.run_next_step(workflow)


class Breaks(Free):
    @step
    def breaks(self) -> None:
        if not trace:
            trace.append("broke")
            raise LookupError("the first time")


@pytest.mark.parametrize(
    "runs",
    [
        testing.run_next_step,
        testing.run_to_end,
        lambda workflow, **how: testing.run_due(**how),
        lambda workflow, **how: testing.run_step(workflow, "breaks", **how),
    ],
    ids=["run_next_step", "run_to_end", "run_due", "run_step"],
)
@pytest.mark.parametrize("raise_errors", [True, False])
def test_a_steps_exception_is_recorded_and_raised_by_default(runs: Any, raise_errors: bool) -> None:
    workflow = Breaks.start()

    if raise_errors:
        with pytest.raises(LookupError, match="the first time"):
            runs(workflow)
    else:
        runs(workflow, raise_errors=False)

    testing.assert_state(workflow, "paused")
    assert testing.assert_step(workflow, "breaks", "failed").error_message == "the first time"


def test_run_due_counts_the_bodies_that_ran() -> None:
    class PassedOver(Free):
        @step(skip_if=True)
        def passed_over(self) -> None:
            pass

        @step
        def runs(self) -> None:
            pass

    PassedOver.start()
    Breaks.start()
    Kit.start(job_options={"wait_until": timezone.now() + DAY})

    assert testing.run_due(raise_errors=False) == 2


def test_run_due_moves_the_clock_to_its_moment() -> None:
    workflow = Kit.start()

    assert testing.run_due(at=clock.now("default") + 3 * DAY + timedelta(minutes=1)) == 1
    assert active(workflow).step_name == "two"
    # It was scheduled with the clock at that moment, three days on.
    assert testing.run_due(at=clock.now("default") + 5 * DAY) == 0
    assert testing.run_due(at=clock.now("default") + 6 * DAY + timedelta(minutes=2)) == 1
    # The past is now.
    assert testing.run_due(at=clock.now("default") - DAY) == 0


def test_run_due_orders_by_priority_and_age() -> None:
    class InOrder(Free):
        @step
        def only(self) -> None:
            trace.append(self.metadata)

    for name, priority in (("late", 5), ("first", -1), ("second", -1)):
        InOrder.start(metadata=name, job_options={"priority": priority})

    testing.run_due()

    assert trace == ["first", "second", "late"]


def test_an_endless_workflow_is_given_up() -> None:
    class Endless(Free):
        @step
        def again(self) -> None:
            self.reattempt()

    with pytest.raises(AssertionError, match="did not end within 5 steps"):
        testing.run_to_end(Endless.start(), most=5)
    with pytest.raises(AssertionError, match="After 5 steps there are still executions due"):
        testing.run_due(most=5)


@pytest.mark.parametrize("before", ["ready", "paused", "failed"])
def test_run_step_runs_a_step_whatever_is_next(before: str) -> None:
    workflow = Kit.start()
    if before == "paused":
        workflow.pause()
    if before == "failed":
        StepExecution.objects.update(state="failed")
        Workflow.objects.update(state="paused")

    testing.run_step(workflow, "two")

    testing.assert_step(workflow, "two", "completed")
    assert Effect.objects.get().step == "two"
    assert active(workflow).step_name == "three"


def test_run_step_refuses_undeclared_steps() -> None:
    with pytest.raises(StepNotDefinedError, match="one, two, three"):
        testing.run_step(Kit.start(), "four")


def test_travels_add_up_and_end_with_an_exception() -> None:
    before = clock.now("default")
    with testing.travel(DAY), testing.travel(DAY):
        assert before + 2 * DAY <= clock.now("default")
    with pytest.raises(ZeroDivisionError), testing.travel(DAY):
        _ = 1 / 0
    assert clock.now("default") < before + DAY


@pytest.mark.parametrize(
    ("point", "state", "bodies"),
    [
        ("prepared", "in_progress", 0),
        ("performed", "in_progress", 1),
        ("finalizing", "in_progress", 1),
        ("finalized", "completed", 1),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_a_crash_leaves_the_rows_as_a_killed_process_does(point: str, state: str, bodies: int) -> None:
    class Crashing(Free):
        @step
        def one(self) -> None:
            Effect.objects.create(workflow=str(self.pk), step="one")

        @step
        def two(self) -> None:
            pass

    workflow = Crashing.start()

    with testing.crash_at(point):
        testing.run_next_step(workflow)

    assert not connection.in_atomic_block
    assert history(workflow)[0][1] == state
    assert Effect.objects.count() == bodies
    testing.assert_state(workflow, "performing" if state == "in_progress" else "ready")


def test_a_crash_needs_a_known_point_that_is_passed() -> None:
    with pytest.raises(ValueError, match="prepared, performed, finalizing, finalized"), testing.crash_at("x"):
        pass
    with (
        pytest.raises(AssertionError, match="did not reach the point 'prepared'"),
        testing.crash_at("prepared"),
    ):
        pass
    with pytest.raises(KeyError), testing.crash_at("prepared"):
        raise KeyError("one of the test's own")
    # And nothing of it stays.
    testing.run_to_end(Kit.start())


def test_a_failed_assertion_shows_the_history() -> None:
    workflow = testing.run_next_step(Breaks.start(), raise_errors=False)

    with pytest.raises(AssertionError) as raised:
        testing.assert_state(workflow, "finished")
    assert "is paused, not finished" in str(raised.value)
    assert "breaks: failed/failed the first time" in str(raised.value)
    with pytest.raises(AssertionError, match="failed/failed, not completed/success"):
        testing.assert_step(workflow, "breaks", "completed", "success")
    with pytest.raises(AssertionError, match="failed/failed, not failed/recovered"):
        testing.assert_step(workflow, "breaks", "failed", "recovered")
    with pytest.raises(AssertionError, match="has no execution of 'nothing'"):
        testing.assert_step(workflow, "nothing", "completed")


def test_assertions_read_the_database() -> None:
    stale = Kit.start()
    testing.run_next_step(Workflow.objects.get(pk=stale.pk))
    Workflow.objects.get(pk=stale.pk).pause()

    testing.assert_state(stale, "paused")
    assert stale.state == "paused"
    assert testing.assert_step(stale, "two", "scheduled").step_name == "two"


def test_keys_from_hosts_with_other_clocks_do_not_mix_up_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = testing.run_next_step(Breaks.start(), raise_errors=False)
    workflow.resume()
    testing.assert_step(workflow, "breaks", "scheduled")

    # As if the keys had come in the other order.
    monkeypatch.setattr(StepExecutionQuerySet, "latest_first", lambda rows: rows.order_by("pk"))

    testing.assert_step(workflow, "breaks", "failed")
    with pytest.raises(AssertionError, match=r"breaks: scheduled/None\n  breaks: failed/failed"):
        testing.assert_state(workflow, "finished")


PROJECT_TEST = """
from datetime import timedelta

import pytest
from django.test import TestCase, TransactionTestCase
from geneva_drive.testing import run_to_end
from tests.testapp.models import Effect, Order
from tests.testapp.workflows import FiveSteps, Heroless


@pytest.mark.django_db
@pytest.mark.parametrize("number", range(4))
def test_by_fixtures(number, geneva_run_to_end, geneva_run_next_step, geneva_run_due, geneva_travel):
    workflow = FiveSteps.start(Order.objects.create(), job_options={"wait": timedelta(days=2)})
    assert geneva_run_due() == 0
    geneva_travel(timedelta(days=2))
    assert geneva_run_due() == 1
    geneva_run_next_step(workflow)
    assert geneva_run_to_end(workflow).state == "finished"
    assert Effect.objects.count() == 5


class TestHere(TestCase):
    def test_it(self):
        assert run_to_end(Heroless.start()).state == "finished"


class TestThere(TransactionTestCase):
    def test_it(self):
        assert run_to_end(Heroless.start()).state == "finished"
"""


@pytest.mark.only_on("sqlite", reason="the kit is the same on each database; this one is made fastest")
def test_a_project_uses_the_fixtures_with_several_workers(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["geneva_drive.testing"]\n')
    (tmp_path / "test_project.py").write_text(PROJECT_TEST)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\ndjango_find_project = false\npythonpath = {ROOT}\n")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "GENEVA"))},
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "GENEVA_TEST_DATABASE": "sqlite",
        "GENEVA_TEST_NAME": f"geneva_project_{os.getpid()}",
        "TMPDIR": str(tmp_path),
    }
    (tmp_path / f"geneva_drive-{environment['GENEVA_TEST_NAME']}").mkdir()

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "6 passed" in done.stdout, done.stdout + done.stderr
