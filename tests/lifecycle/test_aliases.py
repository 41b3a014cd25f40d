"""Rows on a database other than the default, chosen with ``using=`` or by a router."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from geneva_drive import AlreadyOngoingError, HeroKeyError, StepExecution, Workflow, clock, step
from geneva_drive.housekeeping import clean_up, recover
from geneva_drive.models.records import OperatorAction
from geneva_drive.reports import in_flight
from geneva_drive.testing import assert_state, assert_step, crash_at, run_due, run_to_end, travel
from tests.execution.support import Free, active, history, run, trace
from tests.testapp.models import Effect, Order

pytestmark = pytest.mark.django_db(databases=["default", "other"])


class Elsewhere(Free):
    hero_model = "testapp.Order"
    may_proceed_without_hero = False

    @step(skip_if=lambda workflow: workflow.hero.withdrawn)
    def one(self) -> None:
        trace.append((self._state.db, self.hero._state.db))
        if len(trace) == 1:
            self.pause()

    @step(atomic=True)
    def two(self) -> None:
        trace.append(connections["other"].in_atomic_block)
        Effect.objects.using("other").create(workflow=str(self.pk), step="two")


class ToOther:
    """Everything is on the other database."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "other"

    db_for_write = db_for_read


@pytest.fixture(params=["using", "router"])
def using(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Arguments that name the database, where needed."""
    if request.param == "using":
        yield {"using": "other"}
    else:
        with override_settings(DATABASE_ROUTERS=[ToOther()]):
            yield {}


@pytest.fixture
def order() -> Order:
    return Order.objects.using("other").create()


def test_a_workflow_uses_no_other_database_from_start_to_end(using: dict[str, Any], order: Order) -> None:
    with CaptureQueriesContext(connections["default"]) as captured:
        workflow = Elsewhere.start(order, **using)
        run_due(**using)
        assert_state(workflow, "paused")
        workflow.resume(by="somebody")
        run_due(**using)
        assert_state(workflow, "finished")
        assert in_flight.undeclared_in_flight(**using) == []
        assert Elsewhere.removed_steps_in_flight(**using) == {}

    assert [query["sql"] for query in captured.captured_queries] == []
    assert trace == [("other", "other"), ("other", "other"), True]
    assert [outcome for _, _, outcome in history(workflow)] == ["workflow_paused", "success", "success"]
    assert OperatorAction.objects.using("other").get().actor == "somebody"


def test_every_control_uses_the_rows_database(using: dict[str, Any], order: Order) -> None:
    with CaptureQueriesContext(connections["default"]) as captured:
        workflow = Elsewhere.start(order, **using)
        workflow.pause()
        workflow.resume_at("two")
        workflow.pause()
        workflow.skip()
        assert_state(workflow, "finished")
        again = Elsewhere.start(order, **using)
        again.metadata = {"a": 1}
        again.save()
        again.cancel()

    assert len(captured) == 0
    assert Workflow.objects.using("other").count() == 2


def test_every_way_to_start_uses_the_given_database(using: dict[str, Any], order: Order) -> None:
    more = [Order.objects.using("other").create() for _ in range(2)]
    with CaptureQueriesContext(connections["default"]) as captured:
        first = Elsewhere.start(order, **using)
        assert Elsewhere.get_or_start(order, **using) == (first, False)
        with pytest.raises(AlreadyOngoingError):
            Elsewhere.start(order, **using)
        created, skipped = Elsewhere.start_many([order, *more], **using)
        assert (len(created), skipped) == (2, [order])
        rows = Elsewhere.objects.using("other")
        assert rows.get(hero=order) == first
        assert rows.for_hero(Order.objects.using("other").all()).count() == 3
        assert rows.exclude(hero=order).count() == 2

    assert len(captured) == 0


def test_recovery_and_cleanup_use_the_given_database(using: dict[str, Any], order: Order) -> None:
    workflow = Elsewhere.start(order, **using)
    trace.append("do not pause")
    with CaptureQueriesContext(connections["default"]) as captured:
        with crash_at("performed"):
            run(workflow)
        with travel(timedelta(hours=2)):
            assert recover("other").recovered == 1
            assert active(workflow).crashes == 1
            run_to_end(workflow)
        with travel(timedelta(days=40)):
            assert clean_up("other").workflows == 1

    assert len(captured) == 0
    assert Workflow.objects.using("other").count() == StepExecution.objects.using("other").count() == 0


def test_a_workflow_is_written_to_its_heros_database(order: Order) -> None:
    workflow = Elsewhere.start(order)

    assert workflow._state.db == "other"
    assert Elsewhere.get_or_start(order) == (workflow, False)
    assert Elsewhere.start_many([order])[1] == [order]


WRONG: dict[str, Callable[[Order], Any]] = {
    "start": lambda order: Elsewhere.start(order, using="default"),
    "get_or_start": lambda order: Elsewhere.get_or_start(order, using="default"),
    "start_many": lambda order: Elsewhere.start_many([order], using="default"),
    "create": lambda order: Elsewhere.objects.create(hero=order),
    "save": lambda order: Elsewhere(hero=order).save(using="default"),
}


@pytest.mark.parametrize("how", WRONG)
def test_a_hero_from_another_database_is_refused_naming_both(how: str, order: Order) -> None:
    # A hero with the same key and its own workflow must not be confused with it.
    Elsewhere.start(Order.objects.create(pk=order.pk))

    with pytest.raises(HeroKeyError, match=r"'other'.*'default'"):
        WRONG[how](order)

    assert Workflow.objects.using("default").count() == 1
    assert Workflow.objects.using("other").count() == 0


def test_the_testing_kit_uses_the_rows_database(order: Order) -> None:
    workflow = Elsewhere.start(order)
    trace.append("do not pause")

    run_to_end(workflow)

    assert_step(workflow, "two", "completed")
    assert clock.utc(workflow.created_at) <= clock.now("other")


def test_the_same_hero_key_can_have_a_workflow_on_both_databases(order: Order) -> None:
    here = Order.objects.create(pk=order.pk)

    assert Elsewhere.start(here)._state.db == "default"
    assert Elsewhere.start(order)._state.db == "other"


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
def test_dispatch_waits_for_the_commit_of_the_rows_own_database(order: Order) -> None:
    with override_settings(GENEVA_DRIVE={"DISPATCHER": "geneva_drive.dispatchers.Immediate"}):
        trace.append("do not pause")
        with transaction.atomic(using="other"):
            with transaction.atomic(using="default"):
                workflow = Elsewhere.start(order)
            # Commit on the default database, which is not the one of the rows.
            assert len(trace) == 1
        assert len(trace) == 3
    assert_state(workflow, "finished")
