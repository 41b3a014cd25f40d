"""Every way to start a workflow, and what is refused before anything is written."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import ProtectedError
from django.test.utils import CaptureQueriesContext

from geneva_drive import (
    AlreadyOngoingError,
    GenevaDriveError,
    HeroKeyError,
    HeroRequiredError,
    InvalidStateError,
    PayloadError,
    StepConfigurationError,
    StepExecution,
    Workflow,
    removed_step,
    step,
)
from geneva_drive.exceptions import HeroError
from geneva_drive.testing import assert_state, run_to_end
from tests.execution.support import Free, active, history
from tests.testapp.models import Order, Ticket

pytestmark = pytest.mark.django_db


class ForOrders(Free):
    hero_model = "testapp.Order"
    may_proceed_without_hero = False
    job_options = {"queue": "orders"}

    buried_first = removed_step()

    @step
    def one(self) -> None:
        pass

    @step(priority=7)
    def two(self) -> None:
        pass


@pytest.fixture
def order() -> Order:
    return Order.objects.create()


WAYS: dict[str, Callable[[Order], Any]] = {
    "start": ForOrders.start,
    "get_or_start": lambda order: ForOrders.get_or_start(order)[0],
    "start_many": lambda order: ForOrders.start_many([order])[0][0],
    "create": lambda order: ForOrders.objects.create(hero=order),
    "get_or_create": lambda order: ForOrders.objects.get_or_create(hero=order)[0],
    "save": lambda order: _saved(ForOrders(hero=order)),
    "update_or_create": lambda order: ForOrders.objects.update_or_create(hero=order)[0],
}


def _saved(workflow: Any) -> Any:
    workflow.save()
    return workflow


@pytest.mark.parametrize("way", WAYS)
def test_every_way_writes_a_ready_workflow_and_its_first_runnable_step(way: str, order: Order) -> None:
    workflow = WAYS[way](order)

    assert type(workflow) is ForOrders
    stored = Workflow.objects.get()
    assert (stored.pk, stored.type, stored.state) == (workflow.pk, "testapp.ForOrders", "ready")
    assert (stored.hero, stored.next_step_name, stored.current_step_name) == (order, "one", None)
    assert stored.started_at is None
    row = active(stored)
    assert (row.step_name, row.state, row.queue, row.priority) == ("one", "scheduled", "orders", 0)
    assert row.scheduled_for == row.created_at
    run_to_end(workflow)
    assert_state(workflow, "finished")


@pytest.mark.parametrize("way", [way for way in WAYS if way in ("start", "create", "save")])
def test_a_second_workflow_for_the_same_hero_is_refused_with_the_existing_one(way: str, order: Order) -> None:
    existing = ForOrders.start(order)

    with pytest.raises(AlreadyOngoingError) as raised:
        WAYS[way](order)

    assert isinstance(raised.value, IntegrityError)
    assert isinstance(raised.value, GenevaDriveError)
    assert raised.value.workflow == existing
    assert type(raised.value.workflow) is ForOrders
    assert str(existing.pk) in str(raised.value)
    assert Workflow.objects.count() == StepExecution.objects.count() == 1


@pytest.mark.parametrize("way", ["get_or_start", "get_or_create", "update_or_create"])
def test_every_get_method_returns_the_existing_workflow(way: str, order: Order) -> None:
    existing = ForOrders.start(order)

    assert WAYS[way](order) == existing
    assert Workflow.objects.count() == 1


def test_get_or_start_says_whether_it_started(order: Order) -> None:
    first, started = ForOrders.get_or_start(order, metadata={"from": "here"})
    again, started_again = ForOrders.get_or_start(order)

    assert (started, started_again) == (True, False)
    assert first == again
    assert again.metadata == {"from": "here"}


@pytest.mark.parametrize("state", ["ready", "performing", "paused"])
def test_every_ongoing_state_occupies_the_slot(state: str, order: Order) -> None:
    existing = ForOrders.start(order)
    Workflow.objects.update(state=state)

    with pytest.raises(AlreadyOngoingError):
        ForOrders.start(order)
    assert ForOrders.get_or_start(order) == (existing, False)


@pytest.mark.parametrize("end", ["finish", "cancel"])
def test_after_a_workflow_ended_another_can_start(end: str, order: Order) -> None:
    first = ForOrders.start(order)
    if end == "finish":
        run_to_end(first)
    else:
        first.cancel()

    second, started = ForOrders.get_or_start(order)

    assert started
    assert second.pk != first.pk


def test_other_heroes_other_classes_and_allow_multiple_do_not_conflict(order: Order) -> None:
    class ForOrdersToo(Free):
        @step
        def one(self) -> None:
            pass

    ForOrders.start(order)
    ForOrders.start(Order.objects.create())
    ForOrdersToo.start(order)
    beside = ForOrders.start(order, allow_multiple=True)
    ForOrders.start(order, allow_multiple=True)

    assert beside.allow_multiple
    assert ForOrders.objects.for_hero(order).count() == 3
    # A workflow with allow_multiple occupies no slot, so get_or_start does not find it.
    assert ForOrders.get_or_start(order)[0].allow_multiple is False


def test_a_workflow_with_allow_multiple_does_not_block_a_normal_start(order: Order) -> None:
    ForOrders.start(order, allow_multiple=True)

    assert ForOrders.start(order).allow_multiple is False


def test_any_number_of_workflows_without_a_hero_can_run() -> None:
    class Nobodys(Free):
        @step
        def one(self) -> None:
            pass

    assert len({Nobodys.start().pk, Nobodys.start().pk, Nobodys.get_or_start(None)[0].pk}) == 3


def test_the_callers_transaction_stays_usable_after_a_refusal(order: Order) -> None:
    existing = ForOrders.start(order)

    with transaction.atomic():
        other = Order.objects.create()
        with pytest.raises(AlreadyOngoingError):
            ForOrders.start(order)
        with pytest.raises(AlreadyOngoingError):
            ForOrders.objects.create(hero=order)
        assert ForOrders.objects.get_or_create(hero=order) == (existing, False)
        ForOrders.start(other)

    assert ForOrders.objects.count() == 2


def test_a_refused_instance_can_be_saved_once_the_slot_is_free(order: Order) -> None:
    existing = ForOrders.start(order)
    late: Any = ForOrders(hero=order)
    with pytest.raises(AlreadyOngoingError):
        late.save()
    assert late._state.adding

    existing.cancel()
    late.save()

    assert late.pk != existing.pk
    assert history(late) == [("one", "scheduled", None)]


def _formerly(*, ongoing: bool, order: Order) -> tuple[Any, Any]:
    old = ForOrders.start(order)
    Workflow.objects.update(type="testapp.FormerName")
    if not ongoing:
        old.cancel()

    class Renamed(Free):
        former_types = ["testapp.FormerName"]

        @step
        def one(self) -> None:
            pass

    return old, Renamed


@pytest.mark.parametrize("act", ["start", "get_or_start", "start_many"])
def test_an_ongoing_workflow_of_a_former_type_occupies_the_slot(act: str, order: Order) -> None:
    old, renamed = _formerly(ongoing=True, order=order)

    if act == "start":
        with pytest.raises(AlreadyOngoingError) as raised:
            renamed.start(order)
        assert raised.value.workflow is not None
        assert raised.value.workflow.pk == old.pk
        assert type(raised.value.workflow) is renamed
    elif act == "get_or_start":
        found, started = renamed.get_or_start(order)
        assert (found.pk, type(found), started) == (old.pk, renamed, False)
    else:
        assert renamed.start_many([order]) == ([], [order])
    assert Workflow.objects.count() == 1


def test_an_ended_workflow_of_a_former_type_does_not_occupy_the_slot(order: Order) -> None:
    _, renamed = _formerly(ongoing=False, order=order)

    assert renamed.start(order).type == "testapp.Renamed"


# Wrong on purpose; typed as Any to pass the type checker.
AnyOrders: Any = ForOrders
AnyWorkflow: Any = Workflow
AnyFree: Any = Free

REFUSED: dict[str, tuple[Callable[[Order], Any], type[Exception], str]] = {
    "no hero": (lambda order: AnyOrders.start(), HeroRequiredError, "without a hero"),
    "no hero by save": (lambda order: AnyOrders().save(), HeroRequiredError, "without a hero"),
    "no hero by create": (lambda order: AnyOrders.objects.create(), HeroRequiredError, "without a hero"),
    "no hero by get_or_start": (lambda order: AnyOrders.get_or_start(None), HeroRequiredError, "without"),
    "an unsaved hero": (lambda order: AnyOrders.start(Order()), HeroKeyError, "not saved"),
    "an unsaved hero with a key": (lambda order: AnyOrders.start(Order(pk=7)), HeroKeyError, "not saved"),
    "an unsaved hero by get_or_start": (lambda o: AnyOrders.get_or_start(Order()), HeroKeyError, "not saved"),
    "an unsaved hero by start_many": (
        lambda o: AnyOrders.start_many([o, Order()]),
        HeroKeyError,
        "not saved",
    ),
    "no model": (lambda order: AnyOrders.start(order.pk), HeroKeyError, "must be a model instance"),
    "a model class": (lambda order: AnyOrders.start(Order), HeroKeyError, "must be a model instance"),
    "another model": (
        lambda o: AnyOrders.start(Ticket.objects.create()),
        HeroError,
        "runs for testapp.Order",
    ),
    "another model by start_many": (
        lambda order: AnyOrders.start_many([order, Ticket.objects.create()]),
        HeroError,
        "runs for testapp.Order",
    ),
    "an unknown option": (
        lambda order: AnyOrders.start(order, job_options={"color": "red"}),
        StepConfigurationError,
        "'color' is not a job option",
    ),
    "a wrong option": (
        lambda order: AnyOrders.start(order, job_options={"priority": "high"}),
        StepConfigurationError,
        "priority='high'",
    ),
    "a wrong option by start_many": (
        lambda order: AnyOrders.start_many([order], job_options={"wait": timedelta(seconds=-1)}),
        StepConfigurationError,
        "negative",
    ),
    "two ways to say a wait": (
        lambda order: AnyOrders.start(order, job_options={"wait": timedelta(1), "wait_until": order.pk}),
        StepConfigurationError,
        "wait_until",
    ),
    "metadata that cannot be stored": (
        lambda order: AnyOrders.start(order, metadata={"a": [object()]}),
        PayloadError,
        r"metadata\['a'\]\[0\]",
    ),
    "a date for a moment": (lambda o: AnyOrders.start(o, at=date(2030, 1, 1)), TypeError, "not a datetime"),
    "a duration for a moment": (lambda o: AnyOrders.start(o, at=timedelta(1)), TypeError, "not a datetime"),
    "a text for a moment": (lambda o: AnyOrders.start_many([o], at="now"), TypeError, "not a datetime"),
    "the base class": (AnyWorkflow.start, StepConfigurationError, "cannot be started"),
    "an abstract class": (AnyFree.start, StepConfigurationError, "cannot be started"),
    "an abstract class by many": (
        lambda o: AnyFree.start_many([o]),
        StepConfigurationError,
        "cannot be started",
    ),
    "bulk_create": (
        lambda order: AnyOrders.objects.bulk_create([AnyOrders(hero=order)]),
        InvalidStateError,
        "start_many",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_invalid_start_is_refused_and_nothing_is_written(what: str, order: Order) -> None:
    act, error, message = REFUSED[what]

    with transaction.atomic():
        with pytest.raises(error, match=message):
            act(order)
        # The caller's transaction is still usable.
        assert Workflow.objects.count() == StepExecution.objects.count() == 0


def test_a_key_that_does_not_fit_the_column_is_refused(order: Order) -> None:
    class ForAnything(Free):
        @step
        def one(self) -> None:
            pass

    # The test suite's column is a big integer, because most of its models have integer keys.
    with transaction.atomic():
        with pytest.raises(HeroKeyError, match=r"UUID.*does not fit"):
            ForAnything.start(Ticket.objects.create())
        assert Workflow.objects.count() == 0


def test_a_workflow_without_a_runnable_step_finishes_when_it_starts(order: Order) -> None:
    class NothingLeft(Free):
        gone = removed_step()
        gone_too = removed_step()

    workflow = NothingLeft.start(order)
    many, _ = NothingLeft.start_many([Order.objects.create()])

    for each in (workflow, many[0]):
        each.refresh_from_db()
        assert (each.state, each.next_step_name) == ("finished", None)
        assert each.started_at == each.transitioned_at == each.created_at
        assert history(each) == []
    # It occupies no slot.
    assert NothingLeft.get_or_start(order)[1] is True


def test_options_of_start_override_the_classs_and_the_steps_override_both(order: Order) -> None:
    workflow = ForOrders.start(order, job_options={"queue": "mail", "priority": 3})

    assert (active(workflow).queue, active(workflow).priority) == ("mail", 3)
    run_to_end(workflow)
    assert workflow.executions.get(step_name="two").priority == 7


@pytest.mark.parametrize(
    "option", ["state", "type", "next_step_name", "hero_id", "created_at", "ongoing_key"]
)
def test_fields_managed_by_the_library_cannot_be_saved(option: str, order: Order) -> None:
    workflow = ForOrders.start(order)
    workflow.state = "finished"

    with pytest.raises(InvalidStateError, match=option):
        workflow.save(update_fields=[option])
    with pytest.raises(InvalidStateError, match=option):
        workflow.save(update_fields=["metadata", option])

    assert_state(workflow, "ready")


def test_saving_a_stale_instance_undoes_nothing(order: Order) -> None:
    stale = ForOrders.start(order)
    run_to_end(ForOrders.objects.get())

    stale.metadata = {"note": "late"}
    stale.save()

    assert_state(stale, "finished")
    assert stale.metadata == {"note": "late"}


def test_an_execution_cannot_be_changed_directly(order: Order) -> None:
    row = active(ForOrders.start(order))
    row.state = "completed"

    with pytest.raises(InvalidStateError, match="state"):
        row.save(update_fields=["state"])
    row.save()
    row.refresh_from_db()
    assert row.state == "scheduled"


def test_the_database_itself_enforces_both_guarantees(order: Order) -> None:
    workflow = ForOrders.start(order)

    with pytest.raises(IntegrityError), transaction.atomic():
        StepExecution(
            workflow_id=workflow.pk,
            step_name="two",
            queue="x",
            scheduled_for=workflow.created_at,
            created_at=workflow.created_at,
        ).save(force_insert=True)
    second = ForOrders.start(order, allow_multiple=True)
    with pytest.raises(IntegrityError), transaction.atomic():
        Workflow.objects.filter(pk=second.pk).update(allow_multiple=False)


def test_the_content_type_of_a_hero_with_history_is_protected(order: Order) -> None:
    workflow = ForOrders.start(order)
    content_type = workflow.hero_type
    assert content_type is not None

    with pytest.raises(ProtectedError):
        content_type.delete()


# -- many at once


def test_start_many_starts_the_possible_ones_and_reports_the_others() -> None:
    orders = [Order.objects.create() for _ in range(7)]
    ongoing = ForOrders.start(orders[2])

    created, skipped = ForOrders.start_many(orders, job_options={"priority": 2})

    assert skipped == [orders[2]]
    assert [workflow.hero for workflow in created] == [order for order in orders if order != orders[2]]
    assert Workflow.objects.count() == StepExecution.objects.count() == 7
    for workflow in created:
        assert type(workflow) is ForOrders
        assert (active(workflow).step_name, active(workflow).priority) == ("one", 2)
        run_to_end(workflow)
    assert ongoing.pk not in {workflow.pk for workflow in created}
    assert ForOrders.objects.finished().count() == 6


def test_a_hero_given_twice_gets_one_workflow() -> None:
    order = Order.objects.create()

    created, skipped = ForOrders.start_many([order, order, Order.objects.get(pk=order.pk)])

    assert (len(created), skipped) == (1, [order, order])


def test_start_many_accepts_a_queryset_and_an_empty_list() -> None:
    assert ForOrders.start_many([]) == ([], [])
    Order.objects.bulk_create(Order() for _ in range(5))

    created, skipped = ForOrders.start_many(Order.objects.order_by("pk").iterator())

    assert (len(created), skipped) == (5, [])


def test_start_many_needs_few_queries_for_any_number() -> None:
    counts = []
    for number in (2, 30):  # SQLite accepts about forty rows in one statement
        orders = [Order.objects.create() for _ in range(number)]
        with CaptureQueriesContext(connection) as captured:
            ForOrders.start_many(orders)
        counts.append(len(captured))

    assert counts[0] == counts[1]
    assert counts[1] < 12


def test_start_many_works_in_batches() -> None:
    orders = [Order.objects.create() for _ in range(5)]
    ForOrders.start(orders[4])

    created, skipped = ForOrders.start_many(iter(orders), batch_size=2)

    assert (len(created), skipped) == (4, [orders[4]])


def test_start_many_works_again_after_the_first_workflows_ended() -> None:
    orders = [Order.objects.create() for _ in range(3)]
    first, _ = ForOrders.start_many(orders)
    for workflow in first:
        workflow.cancel()

    second, skipped = ForOrders.start_many(orders)

    assert skipped == []
    assert {workflow.pk for workflow in second}.isdisjoint(workflow.pk for workflow in first)
    assert [active(workflow).step_name for workflow in second] == ["one", "one", "one"]


def test_an_invalid_hero_key_type_is_reported_before_any_query() -> None:
    with pytest.raises(HeroKeyError):
        AnyOrders.start(uuid.uuid4())
