"""What the feeder costs in tables full of rows that are none of its business."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from geneva_drive import clock, housekeeping
from geneva_drive.models import StepExecution
from tests.dispatchers.recording import Recording
from tests.worker.tables import empty, fill, plans

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module", autouse=True)
def _full_tables(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        empty()
        fill(1200)
        yield
        empty()


def test_the_feeder_uses_the_index_of_due_executions(recording: type[Recording]) -> None:
    StepExecution.objects.update(created_at=clock.local(clock.now() - timedelta(days=1)))

    found = plans(lambda: housekeeping.feed("default"))

    looks = [plan for plan in found if plan.uses("geneva_execution_due")]
    assert looks, "\n".join(map(str, found))
    for plan in found:
        assert not plan.reads_whole(StepExecution._meta.db_table), plan
    assert len(recording.told) == 10, "what is due, of thousands"
