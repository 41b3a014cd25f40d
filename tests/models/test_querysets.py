"""Finding workflows: by state, by hero, as the right class."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from geneva_drive import HeroKeyError, StepExecution, Workflow, clock, step
from geneva_drive.models.querysets import StepExecutionQuerySet
from tests.execution.support import Free, active
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db


class Found(Free):
    @step
    def one(self) -> None:
        pass


class FoundToo(Free):
    @step
    def one(self) -> None:
        pass


STATES = ["ready", "performing", "paused", "finished", "canceled"]


@pytest.fixture
def in_each_state() -> dict[str, Any]:
    made = {}
    for state in STATES:
        made[state] = Found.start()
        Workflow.objects.filter(pk=made[state].pk).update(state=state)
    return made


@pytest.mark.parametrize(
    ("verb", "states"),
    [*((state, [state]) for state in STATES), ("ongoing", ["ready", "performing", "paused"])],
)
def test_each_method_finds_its_states(verb: str, states: list[str], in_each_state: dict[str, Any]) -> None:
    for manager in (Workflow.objects, Found.objects, Found.objects.all()):
        assert {row.pk for row in getattr(manager, verb)()} == {in_each_state[state].pk for state in states}
    assert getattr(FoundToo.objects, verb)().count() == 0


def test_a_workflow_knows_whether_it_is_ongoing(in_each_state: dict[str, Any]) -> None:
    for state, workflow in in_each_state.items():
        workflow.refresh_from_db()
        ended = state in ("finished", "canceled")
        assert (workflow.is_ongoing, workflow.is_ended) == (not ended, ended)


@pytest.fixture
def orders() -> list[Order]:
    return [Order.objects.create(number=str(number)) for number in range(3)]


def test_by_hero(orders: list[Order]) -> None:
    of_first, of_second, nobodys = Found.start(orders[0]), Found.start(orders[1]), Found.start()
    other_class = FoundToo.start(orders[0])

    assert set(Workflow.objects.for_hero(orders[0])) == {of_first, other_class}
    assert list(Found.objects.filter(hero=orders[0])) == [of_first]
    assert Found.objects.get(hero=orders[1]) == of_second
    assert set(Found.objects.exclude(hero=orders[0])) == {of_second, nobodys}
    assert set(Found.objects.filter(hero=None)) == {nobodys}
    assert set(Found.objects.exclude(hero=None)) == {of_first, of_second}
    assert list(Found.objects.filter(hero=orders[0], state="paused")) == []
    assert Found.objects.filter(hero=orders[2]).first() is None


def test_by_many_heroes(orders: list[Order]) -> None:
    made = [Found.start(order) for order in orders]
    Found.start()
    some = Order.objects.filter(number__in=["0", "2"])

    assert set(Found.objects.for_hero(some)) == {made[0], made[2]}
    assert set(Found.objects.filter(hero=some)) == {made[0], made[2]}
    assert made[1] in Found.objects.exclude(hero=some)
    assert Found.objects.for_hero(Order.objects.none()).count() == 0
    with CaptureQueriesContext(connection) as captured:
        assert Found.objects.for_hero(Order.objects.all()).count() == 3
    assert len(captured) == 1


def test_by_a_slice_of_heroes(orders: list[Order]) -> None:
    made = [Found.start(order) for order in orders]

    assert set(Found.objects.for_hero(Order.objects.order_by("-number")[:2])) == {made[1], made[2]}


@pytest.mark.parametrize("wrong", [7, "order 7", Order])
def test_by_a_value_that_is_not_a_hero(wrong: Any) -> None:
    with pytest.raises(TypeError, match="hero must be"):
        Found.objects.filter(hero=wrong)


def test_from_the_heros_side(orders: list[Order]) -> None:
    made = Found.start(orders[0])
    FoundToo.start(orders[1])

    assert list(orders[0].workflows.all()) == [made]
    assert type(orders[0].workflows.get()) is Found
    assert set(Order.objects.filter(workflows__state="ready")) == {orders[0], orders[1]}
    assert list(Order.objects.filter(workflows__type="testapp.FoundToo")) == [orders[1]]
    assert list(Order.objects.exclude(workflows__state="ready")) == [orders[2]]
    prefetched = Order.objects.prefetch_related("workflows").get(pk=orders[0].pk)
    assert [type(row) for row in prefetched.workflows.all()] == [Found]


@pytest.mark.parametrize(
    "narrow",
    [
        lambda rows: rows.only("state"),
        lambda rows: rows.only("id"),
        lambda rows: rows.only(),
        lambda rows: rows.defer("type"),
        lambda rows: rows.defer("type", "metadata"),
        lambda rows: rows.defer("metadata").only("state"),
        lambda rows: rows.defer("metadata").defer(None),
        lambda rows: rows.select_related("hero_type").only("state", "hero_type__model"),
        lambda rows: rows.annotate(again=F("id")),
        lambda rows: rows.order_by("-pk").distinct(),
    ],
)
def test_a_row_is_loaded_as_its_class_even_with_few_columns(narrow: Any, orders: list[Order]) -> None:
    Found.start(orders[0])
    FoundToo.start(orders[1])

    assert {type(row) for row in narrow(Workflow.objects.all())} == {Found, FoundToo}
    assert [type(row) for row in narrow(Found.objects.all())] == [Found]


def test_a_row_with_few_columns_can_be_moved_and_saved(orders: list[Order]) -> None:
    Found.start(orders[0], metadata={"kept": 1})
    narrow = Workflow.objects.only("state").get()

    narrow.save()
    narrow.pause()

    assert Workflow.objects.get().metadata == {"kept": 1}
    assert Workflow.objects.get().state == "paused"


def test_related_rows_are_loaded_as_their_class_too() -> None:
    Found.start()

    assert type(StepExecution.objects.get().workflow) is Found
    assert type(StepExecution.objects.select_related("workflow").get().workflow) is Found


def test_rows_of_an_undeclared_class_can_be_listed_read_and_canceled(orders: list[Order]) -> None:
    gone, kept = Found.start(orders[0], metadata={"kept": 1}), FoundToo.start(orders[1])
    Workflow.objects.filter(pk=gone.pk).update(type="testapp.Deleted")

    rows = {row.pk: row for row in Workflow.objects.all()}
    row = rows[gone.pk]

    assert type(row) is Workflow
    assert type(rows[kept.pk]) is FoundToo
    assert str(row) == f"testapp.Deleted {row.pk} for testapp.order {orders[0].pk}"
    assert (row.hero, row.metadata, row.steps.names) == (orders[0], {"kept": 1}, ())
    assert list(Found.objects.all()) == []
    assert list(Workflow.objects.for_hero(orders[0])) == [row]
    row.metadata = {"changed": 2}
    row.save()
    row.cancel(by="somebody")
    assert Workflow.objects.get(pk=gone.pk).state == "canceled"
    assert Workflow.objects.get(pk=kept.pk).state == "ready"


def test_a_query_for_an_impossible_key_is_reported() -> None:
    with pytest.raises(HeroKeyError):
        list(Workflow.objects.filter(hero_id=2**63))
    assert list(Workflow.objects.filter(hero_id=2**63 - 1)) == []


def test_executions_have_query_methods_too(orders: list[Order]) -> None:
    workflow = Found.start(orders[0])
    row = active(workflow)
    now = clock.now("default")

    assert list(StepExecution.objects.active()) == [row]
    assert list(StepExecution.objects.scheduled()) == [row]
    assert list(StepExecution.objects.due(now)) == [row]
    assert list(StepExecution.objects.in_progress()) == []
    assert row.is_active
    workflow.pause()
    assert list(StepExecution.objects.due(now)) == []
    assert list(StepExecution.objects.scheduled()) == [row]
    workflow.cancel()
    row.refresh_from_db()
    assert not row.is_active


class TestLatestErrors:
    def failed(self, workflow: Workflow, minutes: int, error: str, **columns: Any) -> StepExecution:
        """Create a failed attempt this many minutes from now; its key increases with each call."""
        values: dict[str, Any] = {"step_name": workflow.next_step_name, "state": "failed", **columns}
        moment = clock.local(clock.now() + timedelta(minutes=minutes))
        return StepExecution.objects.create(
            workflow=workflow,
            queue="default",
            scheduled_for=moment,
            created_at=moment,
            error_class=error,
            **values,
        )

    def test_the_latest_by_time_counts_even_if_keys_are_in_another_order(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # UUID keys come from the clocks of several hosts, so a later attempt may have a lower key.
        monkeypatch.setattr(
            StepExecutionQuerySet, "latest_first", lambda rows: rows.order_by("-created_at", "-pk")
        )
        workflow = Found.start().pause()
        late = self.failed(workflow, 2, "builtins.KeyError")
        early = self.failed(workflow, 1, "builtins.ValueError")
        assert late.pk < early.pk

        assert Workflow.objects.all().latest_errors() == {workflow.pk: "builtins.KeyError"}
        found = Workflow.objects.filter(pk=workflow.pk).with_latest_error().get()
        assert found.latest_error == "builtins.KeyError"

    def test_errors_of_other_steps_and_of_workflows_that_are_not_paused_do_not_count(self) -> None:
        workflow, ready = Found.start().pause(), Found.start()
        self.failed(workflow, 1, "builtins.KeyError", step_name="other")
        self.failed(ready, 1, "builtins.KeyError")

        assert Workflow.objects.all().latest_errors() == {workflow.pk: None}


def test_distinct_values_are_sorted_and_exclude_null() -> None:
    workflow, other = Found.start(), Found.start()
    StepExecution.objects.filter(workflow=workflow).update(error_class="b", queue="mail")
    assert list(StepExecution.objects.all().skip_scan("error_class")) == ["b"]
    StepExecution.objects.filter(workflow=other).update(error_class="a")
    assert list(StepExecution.objects.all().skip_scan("error_class")) == ["a", "b"]
    assert StepExecution.objects.all().buckets() == [(0, "default"), (0, "mail")]
    assert StepExecution.objects.all().buckets(["mail", "nobody's"]) == [(0, "mail")]
