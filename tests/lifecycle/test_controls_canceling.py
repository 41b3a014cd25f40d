"""Canceling while a step runs."""

from __future__ import annotations

import pytest

from geneva_drive import Workflow, step
from geneva_drive.testing import assert_state, assert_step, run_next_step
from tests.execution.support import Free, history, run, trace
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db


def test_a_cancel_during_a_step_takes_effect_at_once_and_the_body_is_recorded_as_canceled() -> None:
    class CanceledWithin(Free):
        @step
        def one(self) -> None:
            mine = Workflow.objects.get(pk=self.pk)
            mine.cancel(by="somebody")
            trace.append((mine.state, mine.current_step_name, mine.is_ongoing))

        @step
        def two(self) -> None:
            trace.append("two")

    workflow = CanceledWithin.start()
    run(workflow, inline_continuation=True)

    assert trace == [("canceled", None, False)]
    assert history(workflow) == [("one", "canceled", "canceled")]
    assert workflow.executions.get().metadata == {"ended_as": "completed"}


def test_a_body_that_raises_after_its_workflow_was_canceled_keeps_its_error() -> None:
    class CanceledAndRaising(Free):
        @step
        def one(self) -> None:
            Workflow.objects.get(pk=self.pk).cancel()
            raise ValueError("too late")

    workflow = run_next_step(CanceledAndRaising.start(), raise_errors=False)

    row = assert_step(workflow, "one", "canceled", "canceled")
    assert (row.error_message, row.metadata) == ("too late", {"ended_as": "failed"})
    assert_state(workflow, "canceled")


def test_a_cancel_in_flight_frees_the_heros_slot() -> None:
    class Restarted(Free):
        @step
        def one(self) -> None:
            if not trace:
                Workflow.objects.get(pk=self.pk).cancel()
                trace.append(Restarted.start(self.hero).pk)

    order = Order.objects.create()
    first = Restarted.start(order)

    run(first)

    assert_state(first, "canceled")
    assert Restarted.objects.ongoing().get(hero=order).pk == trace[0]
