"""Rows are loaded as the class of their type, and are found through its parents."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from django.db import models
from django.db.models.deletion import Collector

from geneva_drive import Workflow, step
from tests.definition.support import Base
from tests.testapp.models import Order
from tests.testapp.workflows import FiveSteps, Heroless

pytestmark = pytest.mark.usefixtures("classes_forgotten")


@pytest.mark.django_db
def test_a_row_is_loaded_as_the_class_of_its_type() -> None:
    five = FiveSteps.start(Order.objects.create())
    heroless = Heroless.start()

    assert type(Workflow.objects.get(pk=five.pk)) is FiveSteps
    assert type(Workflow.objects.only("state").get(pk=heroless.pk)) is Heroless
    assert type(Workflow.objects.defer("type").get(pk=heroless.pk)) is Heroless
    execution = five.executions.select_related("workflow").get()
    assert type(execution.workflow) is FiveSteps
    assert list(FiveSteps.objects.all()) == [five]
    assert list(Heroless.objects.all()) == [heroless]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "label", ["os.system", "testapp.Gone", "", "builtins.type", "tests.testapp.workflows"]
)
def test_a_row_of_an_undeclared_type_is_loaded_as_the_base_class(label: str) -> None:
    made = Heroless.start()
    Workflow.objects.filter(pk=made.pk).update(type=label)

    found = Workflow.objects.get(pk=made.pk)

    assert type(found) is Workflow
    assert found.type == label
    assert len(found.steps) == 0


@pytest.mark.django_db
def test_a_row_of_a_former_type_is_loaded_as_the_current_class() -> None:
    made = Heroless.start()
    Workflow.objects.filter(pk=made.pk).update(type="testapp.Earlier")

    class Later(Base):
        former_types = ["testapp.Earlier"]

    class Latest(Later):
        """Has its own former types, not its parent's."""

    assert type(Workflow.objects.get(pk=made.pk)) is Later
    assert list(Later.objects.values_list("pk", flat=True)) == [made.pk]
    assert not Latest.objects.exists()
    assert Latest.former_types == []


@pytest.mark.django_db
def test_rows_of_subclasses_are_found_through_their_parents() -> None:
    class Shared(Base):
        class Meta(Base.Meta):
            abstract = True

    class Parent(Shared):
        may_proceed_without_hero = True

        @step
        def ship(self) -> None: ...

    class Child(Parent):
        pass

    parent, child = Parent.start(), Child.start()

    assert {type(each) for each in Shared.objects.all()} == {Parent, Child}
    assert set(Parent.objects.all()) == {parent, child}
    assert set(Child.objects.all()) == {child}


@pytest.mark.django_db
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda row: pickle.loads(pickle.dumps(row))])
def test_rows_can_be_copied_pickled_and_refreshed(copied: Any) -> None:
    made = FiveSteps.start(Order.objects.create())

    twin = copied(Workflow.objects.get(pk=made.pk))
    twin.refresh_from_db()

    assert type(twin) is FiveSteps
    assert twin == made


@pytest.mark.django_db
def test_the_signals_of_saving_are_sent_for_a_class() -> None:
    seen: list[tuple[type, bool]] = []

    def receive(sender: type, created: bool, **kwargs: Any) -> None:
        seen.append((sender, created))

    models.signals.post_save.connect(receive, sender=Heroless)
    try:
        Heroless.start()
    finally:
        models.signals.post_save.disconnect(receive, sender=Heroless)

    assert seen == [(Heroless, True)]


@pytest.mark.django_db
def test_a_row_is_deleted_as_the_base_class_with_its_executions() -> None:
    made = Heroless.start()
    executions = made.executions.all()
    assert executions.exists()

    collector = Collector(using="default")
    collector.collect([Workflow.objects.get(pk=made.pk)])
    Workflow.objects.filter(pk=made.pk).delete()

    assert not Workflow.objects.filter(pk=made.pk).exists()
    assert not executions.exists()
