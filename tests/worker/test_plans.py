"""Each index answers the question that it is named for, on every database, over tables full of other rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection, transaction
from django.db.models import Q

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.execution.runner import Runner
from geneva_drive.housekeeping import dead_processes, retention
from geneva_drive.lifecycle import locking
from geneva_drive.lifecycle.starting import find_ongoing
from geneva_drive.models import Process, StepExecution, Workflow
from geneva_drive.reports.figures import figures
from geneva_drive.testing import travel
from geneva_drive.worker import claiming
from tests.acceptance.workshop.workflows import Chain
from tests.worker.tables import Plan, empty, fill, plans

EXECUTIONS = StepExecution._meta.db_table
WORKFLOWS = Workflow._meta.db_table
PROCESSES = Process._meta.db_table

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module", autouse=True)
def _full_tables(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        empty()
        fill(1200)
        yield
        empty()


def _all_use(found: list[Plan], index: str, *, table: str) -> None:
    assert found
    for plan in found:
        assert plan.uses(index), plan
        assert not plan.reads_whole(table), plan


def test_a_claims_scan() -> None:
    """The claim: from bucket to bucket, then the oldest of one, without sorting what lies in it."""
    found = plans(lambda: StepExecution.objects.using("default").buckets())
    _all_use(found, "geneva_execution_due", table=EXECUTIONS)
    found += plans(lambda: next(claiming._pages("default", "default", 0, 1)))
    _all_use(found, "geneva_execution_due", table=EXECUTIONS)
    assert not any(plan.sorts() for plan in found), "\n".join(map(str, found))
    _all_use(
        plans(lambda: claiming.is_anything_due("default", None)), "geneva_execution_due", table=EXECUTIONS
    )


def test_the_next_page_of_a_claims_scan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claiming, "_PAGE", 2)
    found = plans(lambda: list(claiming._pages("default", "default", 0, 1)))
    assert len(found) == 5
    _all_use(found, "geneva_execution_due", table=EXECUTIONS)


def test_executions_in_progress_by_process() -> None:
    """Recovery: of dead processes, of processes without a row, and without a process."""
    found = plans(lambda: list(dead_processes._dead_processes("default", clock.now())), table=EXECUTIONS)
    _all_use(found, "geneva_execution_running", table=EXECUTIONS)
    process = Process.objects.order_by("heartbeat_at").first()
    assert process is not None
    found = plans(lambda: dead_processes._in_progress("default", Q(process_id=process.pk)))
    _all_use(found, "geneva_execution_running", table=EXECUTIONS)
    stuck = Q(process_id__isnull=True, started_at__lt=clock.local(clock.now() - settings.STUCK_AFTER))
    found = plans(lambda: dead_processes._in_progress("default", stuck))
    _all_use(found, "geneva_execution_running", table=EXECUTIONS)
    assert len(dead_processes._in_progress("default", stuck)) == 10


def test_dead_processes() -> None:
    found = plans(
        lambda: list(dead_processes._dead_processes("default", clock.now() - timedelta(hours=1))),
        table=PROCESSES,
    )
    dead = [plan for plan in found if "heartbeat_at" in plan.sql and "<" in plan.sql]
    _all_use(dead, "geneva_process_dead", table=PROCESSES)


def test_workflows_ended_before_the_retention() -> None:
    """The clean-up's scan of a batch, from where the last one ended."""
    rows = retention._ended("default", "finished", clock.now() - timedelta(days=30))
    found = plans(lambda: list(rows.pages(by="transitioned_at", size=4)))
    assert len(found) == 3
    _all_use(found, "geneva_workflow_ended", table=WORKFLOWS)


def test_the_workflows_of_a_hero() -> None:
    hero_type = ContentType.objects.get_for_model(Process)
    found = plans(lambda: list(Workflow.objects.filter(hero_type=hero_type, hero_id=7)))
    _all_use(found, "geneva_workflow_of_hero", table=WORKFLOWS)


def test_workflows_of_a_type_and_state() -> None:
    found = plans(lambda: Workflow.objects.filter(state="ready", type="testapp.Kind7").count())
    _all_use(found, "geneva_workflow_type_state", table=WORKFLOWS)


def test_the_one_active_execution_of_a_workflow() -> None:
    workflow = Workflow.objects.ready().first()
    assert workflow is not None
    found = plans(lambda: _in_a_transaction(lambda: locking.lock_active_execution(workflow)))
    # The foreign key's own index answers as well: a workflow has few executions.
    assert found
    for plan in found:
        assert any(map(plan.uses, ("geneva_one_active_execution", "(active_workflow=?)", "workflow_id"))), (
            plan
        )
        assert not plan.reads_whole(EXECUTIONS), plan


def test_the_one_ongoing_workflow_of_a_hero() -> None:
    hero_type = ContentType.objects.get_for_model(Process)
    found = plans(lambda: find_ongoing(Chain, hero_type.pk, 7, "default"))
    assert found
    assert not any(plan.reads_whole(WORKFLOWS) for plan in found), "\n".join(map(str, found))


def test_a_claim_scans_no_whole_table() -> None:
    """Every query of one claim, from the first look to the rows in progress."""
    found = plans(
        lambda: next(claiming.claim("default", claiming.CandidateCache("default", None), 1, Runner()), None)
    )
    assert len(found) >= 4
    for plan in found:
        for table in (EXECUTIONS, WORKFLOWS):
            assert not plan.reads_whole(table), plan


def _in_a_transaction(act: Callable[[], object]) -> None:
    with transaction.atomic():
        act()


def test_the_figures() -> None:
    """Metrics read them often, so rows that ended or are due next month must not be scanned."""
    _all_use(plans(lambda: figures("default"), table=EXECUTIONS), "geneva_execution_", table=EXECUTIONS)
    # A day later none of them lives any more: of rows that are nearly all counted no index would be read.
    with travel(timedelta(days=1)):
        _all_use(plans(lambda: figures("default"), table=PROCESSES), "geneva_process_dead", table=PROCESSES)
    # Every workflow is counted, so the index is read from end to end, and the table itself is not.
    with transaction.atomic():
        if connection.vendor == "postgresql":
            # Few pages are read faster than an index; with a million rows it is the other way round.
            connection.cursor().execute("SET LOCAL enable_seqscan = off")
        (counted,) = plans(lambda: figures("default"), table=WORKFLOWS)
    assert counted.uses("geneva_workflow_type_state"), counted
