"""Each filter of operators uses an index on every database, in tables full of other rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from geneva_drive import Workflow, clock
from geneva_drive.models import StepExecution
from geneva_drive.reports import doctor
from geneva_drive.reports.selection import Selection, error_classes
from tests.worker.tables import Plan, analyze, empty, fill, plans

pytestmark = pytest.mark.django_db

WORKFLOWS, EXECUTIONS = Workflow._meta.db_table, StepExecution._meta.db_table


OTHERWISE = {
    # It has only averages, by which most executions are in one of the three states.
    ("sqlite", "queue"),
    # They start with the paused workflows, using the index of states.
    ("mysql", "error"),
    # All ongoing workflows are read, and here they are most of the table.
    ("mysql", "undeclared"),
}
"""Databases that choose another plan."""


@pytest.fixture(autouse=True, scope="module")
def _full_tables(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        empty()
        fill(1200)
        # A few matching rows among many, for each index.
        keys = list(Workflow.objects.filter(state="paused").order_by("pk").values_list("pk", flat=True)[:10])
        StepExecution.objects.filter(workflow_id__in=keys).update(
            state="failed", error_class="builtins.ValueError", on_hold=False
        )
        keys = list(Workflow.objects.filter(state="ready").order_by("pk").values_list("pk", flat=True)[:10])
        long_ago = clock.local(clock.now() - timedelta(days=20))
        StepExecution.objects.filter(workflow_id__in=keys).update(state="waiting", waiting_since=long_ago)
        keys = list(
            StepExecution.objects.filter(state="scheduled", on_hold=True).values_list("pk", flat=True)[:1000]
        )
        StepExecution.objects.filter(pk__in=keys).update(
            state="waiting", on_hold=False, waiting_since=clock.local(clock.now())
        )
        Workflow.objects.filter(state="finished").update(created_at=long_ago)
        keys = list(StepExecution.objects.filter(state="scheduled").values_list("pk", flat=True)[:10])
        StepExecution.objects.filter(pk__in=keys).update(queue="other")
        analyze()
        yield
        empty()


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ({"created_after": lambda now: now + timedelta(hours=1)}, "geneva_workflow_created"),
        ({"moved_after": lambda now: now + timedelta(hours=1)}, "geneva_workflow_ended"),
        ({"hero": lambda now: "17"}, "geneva_workflow_of_hero"),
        ({"waiting_longer": lambda now: timedelta(days=7)}, "geneva_execution_waiting"),
        ({"overdue": lambda now: timedelta(0)}, "geneva_execution_due"),
        ({"queue": lambda now: "other"}, "geneva_execution_due"),
        ({"error": lambda now: "builtins.ValueError"}, "geneva_execution_error"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_filter_has_an_index(asked: dict[str, Callable[[Any], Any]], index: str) -> None:
    now = clock.now("default")
    values = {name: value(now) for name, value in asked.items()}
    found = plans(lambda: list(Selection(**values).apply(Workflow.objects.all(), "default")))
    plan: Plan = found[-1]
    assert not plan.reads_whole(WORKFLOWS), plan
    if (connection.vendor, *asked) not in OTHERWISE:
        assert plan.uses(index), plan
        assert not plan.reads_whole(EXECUTIONS), plan


def test_error_classes_are_read_from_the_index() -> None:
    for plan in plans(lambda: list(error_classes("default"))):
        assert plan.uses("geneva_execution_error"), plan
        assert not plan.reads_whole(EXECUTIONS), plan


@pytest.mark.parametrize(
    ("look", "index"), [(doctor.undeclared, None), (doctor.failures, "geneva_workflow_ended")]
)
def test_the_doctors_counts_use_an_index(look: Callable[[str], Any], index: str | None) -> None:
    # The last query counts; those before go from type to type with the index.
    plan: Plan = plans(lambda: list(look("default")))[-1]
    assert not plan.reads_whole(EXECUTIONS), plan
    if (connection.vendor, look.__name__) not in OTHERWISE:
        assert not plan.reads_whole(WORKFLOWS), plan
    assert index is None or plan.uses(index), plan
