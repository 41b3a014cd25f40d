"""Workflows that ended before the retention are deleted with their records; nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from django.db.models.signals import post_delete

from geneva_drive import clock
from geneva_drive.housekeeping import Counts, clean_up
from geneva_drive.models import OperatorAction, StepExecution, Workflow
from tests.housekeeping.support import DAY, KeptTwo, at_once, ended

pytestmark = pytest.mark.django_db


def test_expired_workflows_are_deleted_with_their_records(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"RETENTION": 30 * DAY}
    old = [*ended(2, ago=31 * DAY), *ended(1, ago=40 * DAY, state="canceled")]
    young = ended(1, ago=29 * DAY)
    ongoing = KeptTwo.start()
    ongoing.pause(by="somebody")
    Workflow.objects.filter(pk=ongoing.pk).update(transitioned_at=clock.local(clock.now() - 100 * DAY))
    OperatorAction.objects.create(workflow=old[0], action="cancel", created_at=clock.local(clock.now()))

    counts = clean_up("default")

    assert (counts.workflows, counts.executions, counts.operator_actions) == (3, 6, 1)
    assert set(Workflow.objects.values_list("pk", flat=True)) == {young[0].pk, ongoing.pk}
    assert StepExecution.objects.count() == 3
    assert clean_up("default") == Counts()


def test_retention_none_keeps_everything(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"RETENTION": None}
    ended(1, ago=1000 * DAY)
    assert clean_up("default") == Counts()
    assert clean_up("default", retention=DAY).workflows == 1


def test_a_workflow_with_a_running_step_is_kept() -> None:
    """Given a canceled workflow whose old body still runs, its end finds its rows."""
    running, _ = ended(2, ago=100 * DAY, state="canceled")
    StepExecution.objects.filter(pk=running.executions.all()[0].pk).update(state="in_progress")
    assert clean_up("default").workflows == 1
    assert list(Workflow.objects.all()) == [running]
    assert running.executions.count() == 2


def test_a_clean_up_runs_in_batches_and_can_be_stopped(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"CLEANUP_BATCH_SIZE": 3}
    # All at the very same moment: batches are told apart by key.
    ended(8, ago=50 * DAY)
    seen: list[int] = []
    counts = clean_up(
        "default", progress=lambda counts: seen.append(counts.workflows), stop=lambda: len(seen) == 2
    )
    assert (seen, counts.workflows) == ([3, 6], 6)
    assert clean_up("default").workflows == 2


def test_rows_that_cannot_be_deleted_are_tried_once(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"CLEANUP_BATCH_SIZE": 2}
    workflows = ended(7, ago=50 * DAY)
    stays = workflows[:4]
    StepExecution.objects.filter(workflow__in=[each.pk for each in stays], pk__in=_firsts(stays)).update(
        state="in_progress"
    )
    batches: list[int] = []
    assert clean_up("default", progress=lambda counts: batches.append(counts.workflows)).workflows == 3
    assert len(batches) == 4


def _firsts(workflows: list[Workflow]) -> list[Any]:
    return [each.executions.order_by("pk")[0].pk for each in workflows]


def test_delete_signals_are_sent_for_the_base_class() -> None:
    (workflow,) = ended(1, ago=50 * DAY)
    told: list[tuple[Any, str]] = []

    def receive(sender: type[Workflow], instance: Workflow, **_: Any) -> None:
        told.append((instance.pk, instance.type))

    post_delete.connect(receive, sender=Workflow)
    try:
        clean_up("default")
    finally:
        post_delete.disconnect(receive, sender=Workflow)
    assert told == [(workflow.pk, "workshop.KeptTwo")]


@pytest.mark.only_on("postgresql", "mysql", "mariadb", reason="SQLite locks all rows at once")
@pytest.mark.django_db(transaction=True)
def test_a_locked_row_is_left_for_the_next_pass() -> None:
    locked, free = ended(2, ago=50 * DAY)
    with transaction.atomic():
        Workflow.objects.select_for_update().get(pk=locked.pk)
        at_once(lambda: clean_up("default"))
    assert list(Workflow.objects.all()) == [locked]
    assert locked.executions.count() == 2
    assert clean_up("default").workflows == 1
    assert not Workflow.objects.filter(pk=free.pk).exists()
