"""The filters of operators, and the rows that they select."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from geneva_drive import Workflow, clock, step
from geneva_drive.models import StepExecution
from geneva_drive.models.step_execution import NotNullIndex
from geneva_drive.reports.selection import Selection, error_classes
from geneva_drive.testing import run_next_step, run_to_end, travel
from tests.management.test_action_commands import started, stumbled
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db


class Moody(Workflow):
    """Fails in a different way each time."""

    may_proceed_without_hero = True

    class Meta:
        app_label = "testapp"

    @step
    def work(self) -> None:
        raise (ValueError if self.executions.count() == 1 else KeyError)("no")


class Waiting(Workflow):
    """Waits."""

    may_proceed_without_hero = True

    class Meta:
        app_label = "testapp"

    @step(wait_for="news")
    def work(self) -> None: ...


def chosen(**asked: Any) -> set[Any]:
    found = Selection(**asked).apply(Workflow.objects.all(), "default")
    keys = [each.pk for each in found]
    assert len(keys) == len(set(keys))
    return set(keys)


class TestRows:
    def test_by_the_latest_error_at_their_step(self) -> None:
        workflow = Moody.start()
        run_to_end(workflow, raise_errors=False)
        assert chosen(error="builtins.ValueError") == {workflow.pk}
        workflow.resume()
        run_to_end(workflow, raise_errors=False)
        assert chosen(error="builtins.ValueError") == set()
        assert chosen(error="KeyError") == {workflow.pk}
        workflow.cancel()
        assert chosen(error="KeyError") == set()

    def test_by_an_attempted_step(self) -> None:
        first, _second = started(2)
        run_next_step(first)
        assert chosen(tried="two") == {first.pk}

    def test_by_hero(self) -> None:
        first, second = started(2)
        assert chosen(hero=f"testapp.order:{first.hero_id}") == {first.pk}
        assert chosen(hero=str(second.hero_id)) == {second.pk}
        for wrong in ("testapp.order:x", "nowhere.order:1", "order:1"):
            with pytest.raises(ValueError, match="order"):
                chosen(hero=wrong)

    def test_by_how_long_they_wait_or_are_overdue(self) -> None:
        (due,) = started()
        waiting = Waiting.start()
        run_next_step(waiting)
        held = started()[0].pause()
        with travel(timedelta(hours=2)):
            assert chosen(overdue=timedelta(hours=1)) == {due.pk}
            assert chosen(overdue=timedelta(hours=3)) == set()
            assert chosen(waiting_longer=timedelta(hours=1)) == {waiting.pk}
            assert chosen(waiting_longer=timedelta(hours=3)) == set()
        assert held.pk not in chosen(overdue=timedelta(0))

    def test_by_when_they_started_or_changed_state(self) -> None:
        early, paused = started(2)
        paused.pause()
        now = clock.now("default")
        assert chosen(created_after=now - timedelta(minutes=5)) == {early.pk, paused.pk}
        assert chosen(created_before=now - timedelta(minutes=5)) == set()
        assert chosen(moved_after=now - timedelta(minutes=5)) == {paused.pk}

    def test_by_undeclared_step_or_class(self) -> None:
        at_step, of_class, fine = started(3)
        Workflow.objects.filter(pk=at_step.pk).update(next_step_name="gone")
        Workflow.objects.filter(pk=of_class.pk).update(type="testapp.Gone")
        Workflow.objects.filter(pk=fine.pk).update(next_step_name="buried")
        assert chosen(undeclared=True) == {at_step.pk, of_class.pk}
        of_class.cancel()
        assert chosen(undeclared=True) == {at_step.pk}

    def test_by_several_filters_and_up_to_a_key(self) -> None:
        first, second = started(2)
        stumbled()
        assert chosen(type="testapp.FiveSteps", states=("ready",), up_to=first.pk) == {first.pk}
        assert chosen(type="testapp.FiveSteps", step="one") == {first.pk, second.pk}

    def test_a_selection_can_be_stored_and_read_back(self) -> None:
        asked = Selection(states=("paused",), overdue=timedelta(hours=1), created_after=clock.now("default"))
        assert Selection(**asked.as_dict()) == asked
        assert not Selection()


def test_error_classes_are_found_one_by_one() -> None:
    stumbled()
    run_to_end(Moody.start(), raise_errors=False)
    StepExecution.objects.filter(error_class__isnull=True).update(error_class="KeyError")
    assert sorted(error_classes("default")) == ["KeyError", "builtins.ValueError"]


def test_a_column_that_is_mostly_empty_is_indexed_where_it_is_not(database: str) -> None:
    index = NotNullIndex(fields=["error_class"], name="some_index")
    sql = str(index.create_sql(StepExecution, connection.schema_editor(collect_sql=True)))
    assert "some_index" in sql
    assert ("IS NOT NULL" in sql) is (database in ("sqlite", "postgresql"))
    _path, _arguments, options = index.deconstruct()
    assert NotNullIndex(**options) == index


def test_heroes_with_every_kind_of_key_can_be_selected() -> None:
    order = Order.objects.create()
    assert chosen(hero=str(order.pk)) == set()
    assert chosen(search="no such thing") == set()
    assert chosen(search="9" * 60) == set()
