"""Overdue executions are dispatched again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from geneva_drive import clock
from geneva_drive.dispatchers import Dispatcher
from geneva_drive.housekeeping import redispatch
from geneva_drive.models import StepExecution, Workflow
from tests.housekeeping.support import DAY, KeptTwo
from tests.worker.support import active

pytestmark = pytest.mark.django_db


class Remembering(Dispatcher):
    """Records what it was asked to enqueue."""

    carried: list[Any] = []

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        self.carried.append(execution_id)
        return "job"


@pytest.fixture
def carried(settings: Any) -> list[Any]:
    settings.GENEVA_DRIVE = {
        "DISPATCHER": f"{__name__}.Remembering",
        "OVERDUE_AFTER": timedelta(minutes=15),
    }
    Remembering.carried.clear()
    return Remembering.carried


def _overdue(workflow: Workflow, *, by: timedelta, sent: timedelta | None) -> StepExecution:
    row = active(workflow)
    StepExecution.objects.filter(pk=row.pk).update(
        scheduled_for=clock.local(clock.now() - by),
        dispatched_at=None if sent is None else clock.local(clock.now() - sent),
    )
    return row


def test_overdue_executions_are_dispatched_again(carried: list[Any]) -> None:
    minutes = timedelta(minutes=1)
    never = _overdue(KeptTwo.start(), by=16 * minutes, sent=None)
    lost = _overdue(KeptTwo.start(), by=60 * minutes, sent=60 * minutes)
    _overdue(KeptTwo.start(), by=60 * minutes, sent=14 * minutes)
    _overdue(KeptTwo.start(), by=14 * minutes, sent=None)
    held = KeptTwo.start()
    held.pause()
    _overdue(held, by=60 * minutes, sent=None)
    carried.clear()

    assert redispatch("default").redispatched == 2
    assert carried == [lost.pk, never.pk]
    # Not again until as much time has passed again, and the same rows: no attempt was used.
    assert redispatch("default").redispatched == 0
    assert StepExecution.objects.count() == 5
    lost.refresh_from_db()
    assert (lost.state, lost.crashes, lost.job_id) == ("scheduled", 0, "job")


def test_the_worker_dispatcher_dispatches_nothing_again() -> None:
    _overdue(KeptTwo.start(), by=DAY, sent=None)
    assert redispatch("default").redispatched == 0
