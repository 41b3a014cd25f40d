"""Workflows whose hero changes, is deleted, or loses its model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.contenttypes.models import ContentType

from geneva_drive import HeroKeyError, HeroModelGone, StepExecution, Workflow, step
from geneva_drive.testing import assert_state, assert_step, run_next_step
from tests.execution.support import Free
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db


class Hero(Free):
    may_proceed_without_hero = False

    @step
    def one(self) -> None:
        self.hero.number = "changed"
        self.hero.save()

    @step
    def two(self) -> None:
        pass


@pytest.fixture
def order() -> Order:
    return Order.objects.create(number="first")


def test_a_step_sees_the_hero_as_it_is_now(order: Order) -> None:
    workflow = Hero.start(order)
    Order.objects.update(withdrawn=True)

    run_next_step(workflow)

    order.refresh_from_db()
    assert (order.number, order.withdrawn) == ("changed", True)
    assert workflow.hero.number == "changed"


def test_deleting_a_hero_keeps_the_history_and_cancels_workflows_at_their_next_step(order: Order) -> None:
    ended, waiting = Hero.start(order, allow_multiple=True), Hero.start(order)
    run_next_step(ended)
    run_next_step(ended)
    run_next_step(waiting)

    order.delete()

    assert Workflow.objects.count() == 2
    assert StepExecution.objects.count() == 4
    assert_state(ended, "finished")
    run_next_step(waiting)
    assert_state(waiting, "canceled")
    assert assert_step(waiting, "two", "canceled", "canceled").metadata == {"reason": "the hero is missing"}
    assert waiting.hero is None
    assert f"for testapp.order {waiting.hero_id}" in str(waiting)


def test_a_queryset_of_heroes_is_deleted_without_their_history(order: Order) -> None:
    Hero.start(order)

    deleted, by_model = Order.objects.all().delete()

    assert (deleted, by_model) == (1, {"testapp.Order": 1})
    assert Workflow.objects.count() == 1


def test_a_workflow_of_a_deleted_hero_can_be_canceled_and_its_rows_are_listed(order: Order) -> None:
    workflow = Hero.start(order)
    order.delete()

    assert [row.hero for row in Workflow.objects.prefetch_related("hero")] == [None]
    Workflow.objects.get().cancel()
    assert_state(workflow, "canceled")


@pytest.fixture
def model_gone(order: Order) -> Iterator[Workflow]:
    workflow = Hero.start(order)
    ContentType.objects.filter(app_label="testapp", model="order").update(model="purchase")
    ContentType.objects.clear_cache()
    yield Workflow.objects.get(pk=workflow.pk)
    ContentType.objects.clear_cache()


def test_a_removed_hero_model_is_not_a_missing_hero(model_gone: Workflow) -> None:
    with pytest.raises(HeroModelGone, match=rf"testapp.purchase with the key {model_gone.hero_id}"):
        _ = model_gone.hero

    with pytest.raises(HeroModelGone):
        run_next_step(model_gone)

    row = assert_step(model_gone, "one", "failed", "failed")
    assert "testapp.purchase" in (row.error_message or "")
    assert "migrate its content type" in (row.error_message or "")
    assert_state(model_gone, "paused")


def test_a_workflow_whose_hero_model_was_removed_can_be_listed_and_canceled(model_gone: Workflow) -> None:
    assert str(model_gone) == f"testapp.Hero {model_gone.pk} for testapp.purchase {model_gone.hero_id}"
    assert list(Workflow.objects.ongoing()) == [model_gone]

    model_gone.cancel()

    assert_state(model_gone, "canceled")


def test_an_operator_can_resume_when_the_model_is_restored(model_gone: Workflow) -> None:
    run_next_step(model_gone, raise_errors=False)
    ContentType.objects.filter(model="purchase").update(model="order")
    ContentType.objects.clear_cache()

    workflow = Workflow.objects.get(pk=model_gone.pk).resume()
    run_next_step(workflow)

    assert_step(workflow, "one", "completed")


@pytest.mark.parametrize("wrong", [7, "7", object()])
def test_only_a_model_instance_can_be_a_hero(wrong: object) -> None:
    with pytest.raises(HeroKeyError, match="must be a model instance"):
        Hero(hero=wrong)


@pytest.mark.parametrize("key", [2**31, 2**53 + 1])
def test_integer_keys_of_every_size_are_stored(key: int) -> None:
    order = Order.objects.create(pk=key)
    workflow = Hero.start(order)

    assert Workflow.objects.get(hero=order).hero == order
    run_next_step(workflow)
    assert_step(workflow, "one", "completed")
