"""What is in flight, and what this code does not declare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from geneva_drive import StepExecution, Workflow, removed_step, step
from geneva_drive.reports import in_flight
from geneva_drive.reports.in_flight import RemovedStep, Undeclared
from geneva_drive.testing import run_next_step, run_to_end
from tests.execution.support import Free, active, own_classes_forgotten

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _left_alone() -> Iterator[None]:
    with own_classes_forgotten():
        yield


def before_deploy() -> Any:
    class Reported(Free):
        @step
        def one(self) -> None:
            pass

        @step
        def two(self) -> None:
            pass

        @step
        def three(self) -> None:
            pass

    return Reported


def after_deploy() -> Any:
    class Reported(Free):
        one = removed_step()
        two = removed_step()

        @step
        def three(self) -> None:
            pass

    return Reported


def removed() -> dict[str, tuple[int, int]]:
    """Return the rows of this module's class, and those that can still reach the step."""
    rows = [row for row in in_flight.removed_steps_in_flight() if row.type == "testapp.Reported"]
    assert [row.step for row in rows] == ["one", "two"]
    return {row.step: (row.executions, row.landing) for row in rows}


def test_removed_steps_are_counted_with_the_workflows_that_can_still_reach_them() -> None:
    cls = before_deploy()
    cls.start()  # at one
    beyond_one = run_next_step(cls.start())  # at two, was at one
    run_next_step(beyond_one).pause()  # at three, was at both
    at_two = run_next_step(cls.start())
    run_to_end(cls.start())
    after_deploy()

    assert removed() == {"one": (3, 1), "two": (2, 1)}

    Workflow.objects.get(pk=at_two.pk).cancel()
    assert removed() == {"one": (2, 1), "two": (1, 0)}


def test_a_paused_workflow_with_a_gravestone_as_next_step_counts() -> None:
    workflow = run_next_step(before_deploy().start())
    StepExecution.objects.filter(pk=active(workflow).pk).update(state="failed")
    Workflow.objects.filter(pk=workflow.pk).update(state="paused")
    after_deploy()

    assert removed() == {"one": (1, 0), "two": (1, 1)}


def test_a_gravestone_without_rows_can_be_deleted() -> None:
    after_deploy()

    rows = [row for row in in_flight.removed_steps_in_flight() if row.type == "testapp.Reported"]
    assert rows == [
        RemovedStep("testapp.Reported", "one", 0, 0),
        RemovedStep("testapp.Reported", "two", 0, 0),
    ]
    assert all(row.can_be_deleted for row in rows)
    assert not RemovedStep("testapp.Reported", "one", 1, 0).can_be_deleted


def test_declared_steps_and_classes_are_not_reported() -> None:
    cls = before_deploy()
    cls.start()
    run_next_step(cls.start()).pause()
    after_deploy()

    assert in_flight.undeclared_in_flight() == []


def test_undeclared_steps_are_reported_if_workflows_are_at_them() -> None:
    cls = before_deploy()
    cls.start()
    run_next_step(cls.start())
    run_next_step(cls.start()).pause()
    failed = run_next_step(cls.start())
    StepExecution.objects.filter(pk=active(failed).pk).update(state="failed")
    Workflow.objects.filter(pk=failed.pk).update(state="paused")
    run_to_end(cls.start())
    run_next_step(cls.start()).cancel()

    class Reported(Free):
        @step
        def three(self) -> None:
            pass

    assert in_flight.undeclared_in_flight() == [
        Undeclared("testapp.Reported", "one", 1, {"ready": 1}),
        Undeclared("testapp.Reported", "two", 3, {"ready": 1, "paused": 2}),
    ]
    assert Reported.removed_steps_in_flight() == {}


def test_a_step_that_was_passed_is_not_reported_as_undeclared() -> None:
    workflow = run_next_step(before_deploy().start())

    class Reported(Free):
        @step(formerly=["two"])
        def second(self) -> None:
            pass

    assert active(workflow).step_name == "two"
    assert type(Workflow.objects.get()) is Reported
    assert in_flight.undeclared_in_flight() == []


def test_undeclared_classes_are_reported_as_a_whole() -> None:
    cls = before_deploy()
    for state in ("ready", "ready", "paused", "canceled"):
        workflow = cls.start()
        if state == "paused":
            workflow.pause()
        if state == "canceled":
            workflow.cancel()
    Workflow.objects.update(type="testapp.Deleted")

    (row,) = in_flight.undeclared_in_flight()
    assert row == Undeclared("testapp.Deleted", None, 3, {"ready": 2, "paused": 1})


def test_a_former_type_counts_as_declared() -> None:
    before_deploy().start()
    Workflow.objects.update(type="testapp.OldName")

    class NewName(Free):
        former_types = ["testapp.OldName"]
        one = removed_step()

        @step
        def two(self) -> None:
            pass

    assert in_flight.undeclared_in_flight() == []
    assert RemovedStep("testapp.NewName", "one", 1, 1) in in_flight.removed_steps_in_flight()
    assert NewName.removed_steps_in_flight() == {"one": 1}


def test_the_number_of_queries_does_not_depend_on_the_number_of_rows() -> None:
    cls = before_deploy()
    costs = []
    for _ in range(2):
        for _ in range(3):
            cls.start()
        with CaptureQueriesContext(connection) as captured:
            in_flight.undeclared_in_flight()
            in_flight.removed_steps_in_flight()
        costs.append(len(captured))

    assert costs[0] == costs[1]
