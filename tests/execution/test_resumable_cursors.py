"""Cursors: any payload, stored as it was when it was set, of a limited size."""

from __future__ import annotations

import datetime
import uuid
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from geneva_drive import Iteration, PayloadError, PayloadTooLargeError, StepExecution, resumable_step
from geneva_drive.testing import (
    assert_cursor,
    assert_state,
    assert_step,
    run_iterations,
    run_next_step,
    run_to_end,
    travel,
)
from tests.execution.loops import CountingLoop
from tests.execution.support import Free, active, run, trace
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db

VALUES: list[Any] = [
    0,
    -(2**63),
    1.5,
    "é\u2028",
    "",
    True,
    {},
    [],
    {"page": [1, None], "$odd": {}},
    ("a", 1, ("b",)),
    {1, 2},
    b"\0\xff",
    Decimal("1.50"),
    uuid.UUID(int=7),
    datetime.date(2024, 2, 29),
    datetime.time(2, 30, fold=1),
    datetime.datetime(2024, 10, 27, 0, 30, 0, 1, tzinfo=datetime.UTC),
    timedelta(days=-1, microseconds=1),
]


class SettingLoop(Free):
    @resumable_step(max_iterations=1)
    def keep(self, iteration: Iteration) -> None:
        trace.append((iteration.cursor, iteration.resumed))
        if not iteration.resumed:
            iteration.set(self.metadata)


@pytest.mark.parametrize(
    "value",
    VALUES,
    ids=lambda value: f"{type(value).__name__}_{value}" if not isinstance(value, set) else "set",
)
def test_a_cursor_of_any_payload_type_is_read_back_equal(value: Any) -> None:
    workflow = run_to_end(SettingLoop.start(metadata=value))

    assert trace == [(None, False), (value, True)]
    assert type(trace[1][0]) is type(value)
    assert_cursor(workflow, value)


def test_a_model_instance_is_stored_as_a_reference() -> None:
    order = Order.objects.create(number="7")

    run_to_end(SettingLoop.start(metadata=order))

    assert trace[1][0] == order
    assert trace[1][0].number == "7"


def test_later_changes_to_a_value_do_not_change_the_cursor() -> None:
    class Changing(Free):
        @resumable_step(checkpoint_every=100)
        def keep(self, iteration: Iteration) -> None:
            page = {"number": 1}
            iteration.set(page)
            page["number"] = 2

    workflow = run_next_step(Changing.start())

    assert_cursor(workflow, {"number": 1})


@pytest.mark.parametrize("value", [float("nan"), object(), {1: 2}, 2**63])
def test_a_cursor_that_cannot_be_stored_is_refused_where_it_is_set(value: Any) -> None:
    class Refused(Free):
        @resumable_step(checkpoint_every=100)
        def keep(self, iteration: Iteration) -> None:
            iteration.set("good")
            with pytest.raises(PayloadError, match="keep: cursor"):
                iteration.set(value)
            trace.append(iteration.cursor)

    assert_cursor(run_next_step(Refused.start()), "good", iterations=1)
    assert trace == ["good"]


@override_settings(GENEVA_DRIVE={"MAX_CURSOR_BYTES": 20})
def test_a_cursor_is_limited_in_size() -> None:
    class Large(Free):
        @resumable_step
        def keep(self, iteration: Iteration) -> None:
            iteration.set("x" * 18)
            iteration.set("x" * 19)

    workflow = Large.start()
    with pytest.raises(PayloadTooLargeError, match="at most 20"):
        run_next_step(workflow)

    assert_cursor(workflow, "x" * 18)


# -- a cursor that cannot be read


def test_a_cursor_of_newer_code_is_deferred_then_fails_and_pauses() -> None:
    workflow = run_iterations(CountingLoop.start(), 3)
    column = "CAST(%s AS jsonb)" if connection.vendor == "postgresql" else "%s"
    quoted = connection.ops.quote_name("cursor")
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE geneva_drive_stepexecution SET {quoted} = {column} WHERE id = %s",
            [
                '{"$moment": "of tomorrow"}',
                StepExecution._meta.pk.get_db_prep_value(active(workflow).pk, connection),
            ],
        )

    assert run(workflow) == 0
    row = active(workflow)
    assert row.state == "scheduled"
    assert row.deferred_since is not None
    assert row.scheduled_for > row.created_at
    with travel(timedelta(hours=1)):
        assert run(workflow) == 0

    assert trace == [0, 1, 2]
    assert_state(workflow, "paused")
    failed = assert_step(workflow, "count", "failed", "failed")
    assert failed.error_class == "geneva_drive.exceptions.PayloadError"
    assert "count" in str(failed.error_message)
    # Nothing is lost: newer code finds it unchanged.
    workflow.resume()
    assert active(workflow).cursor == failed.cursor
