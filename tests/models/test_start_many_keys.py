"""start_many with every type of hero key column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, models
from django.test.utils import CaptureQueriesContext

from geneva_drive import Workflow, step
from tests.execution.support import Free, active, own_classes_forgotten
from tests.testapp.models import Order, Ticket

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _left_alone() -> Iterator[None]:
    with own_classes_forgotten():
        yield


def test_every_row_gets_its_key_and_its_first_step(kind: str) -> None:
    class OfAnyKind(Free):
        @step
        def one(self) -> None:
            pass

    wanted: dict[str, list[type[models.Model]]] = {
        "bigint": [Order],
        "uuid": [Ticket],
        "string": [Order, Ticket],
    }
    heroes: list[Any] = [model._default_manager.create() for model in wanted[kind] for _ in range(3)]

    with CaptureQueriesContext(connection) as captured:
        created, skipped = OfAnyKind.start_many([*heroes, heroes[0]])

    assert skipped == [heroes[0]]
    assert [workflow.hero for workflow in created] == heroes
    assert len({workflow.pk for workflow in created}) == len(heroes)
    # Not one by one, as after a conflict.
    assert sum("INSERT" in query["sql"] for query in captured.captured_queries) == 2
    for workflow in created:
        assert active(workflow).step_name == "one"
        assert Workflow.objects.get(pk=workflow.pk).hero == workflow.hero
    created[0].cancel()
    with CaptureQueriesContext(connection) as captured:
        again, skipped = OfAnyKind.start_many(heroes)
    assert [workflow.hero for workflow in again] == heroes[:1]
    assert skipped == heroes[1:]
    assert sum("INSERT" in query["sql"] for query in captured.captured_queries) == 2
