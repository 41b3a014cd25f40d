"""Exceptions before the body, in conditions and in the hero lookup, are handled by the same policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from django.contrib.contenttypes.models import ContentType

from geneva_drive import ExceptionPolicy, Workflow, cancel_if, step
from geneva_drive.exceptions import HeroModelGone
from geneva_drive.testing import assert_state, assert_step, run_next_step, run_to_end
from tests.execution.scripted import Busy, Scripted, play, rows
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db


class FailsGuarded(Scripted):
    exception_policies: ClassVar[list[Any]] = [
        ExceptionPolicy("reattempt", matching=Busy, max_reattempts=2, terminal_action="cancel")
    ]

    @cancel_if
    def gone(self) -> bool:
        self.script(self)
        return False

    @step
    def work(self) -> None:
        Scripted.handled.append("body")


def test_an_error_in_a_condition_is_handled_by_the_same_policies() -> None:
    workflow = run_to_end(play(FailsGuarded, Busy(), Busy(), None))

    assert_state(workflow, "finished")
    assert Scripted.handled == ["body"]

    workflow = run_to_end(play(FailsGuarded, Busy()))
    assert_state(workflow, "canceled")
    assert [row.outcome for row in rows(workflow)] == ["reattempted", "reattempted", "canceled"]
    assert Scripted.handled == ["body"]


class FailsHeroic(Workflow):
    hero_model = "testapp.Order"
    exception_policies: ClassVar[list[Any]] = [ExceptionPolicy("skip")]

    class Meta:
        app_label = "testapp"

    @step
    def work(self) -> None:
        Scripted.handled.append("body")

    @step
    def after(self) -> None: ...


@pytest.fixture
def hero_model_gone() -> Iterator[Callable[[], None]]:
    """Return a function that makes hero lookups fail: their model is no longer installed."""

    def gone() -> None:
        ContentType.objects.filter(model="order").update(model="gone")
        ContentType.objects.clear_cache()

    yield gone
    ContentType.objects.clear_cache()


def test_an_error_in_the_hero_lookup_is_handled_by_them_too(hero_model_gone: Callable[[], None]) -> None:
    workflow = FailsHeroic.start(Order.objects.create())
    hero_model_gone()

    run_next_step(workflow)

    execution = assert_step(workflow, "work", "skipped", "skipped")
    assert execution.error_class == "geneva_drive.exceptions.HeroModelGone"
    assert Scripted.handled == []


def test_no_policy_applies_to_an_undeclared_step(hero_model_gone: Callable[[], None]) -> None:
    """The lookup fails on a row whose step is undeclared, so neither skip nor reattempt is possible."""
    workflow = FailsHeroic.start(Order.objects.create())
    workflow.executions.update(step_name="unknown")
    hero_model_gone()

    with pytest.raises(HeroModelGone):
        run_next_step(workflow)

    assert_state(workflow, "paused")
    execution = assert_step(workflow, "unknown", "failed", "failed")
    assert execution.metadata["reason"] == "the policy 'skip' cannot be followed, for the step is not defined"
