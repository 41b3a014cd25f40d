"""Workflow classes that cannot work are refused before they are created."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.db import models

from geneva_drive import StepConfigurationError
from geneva_drive.definition.registry import registry
from tests.definition.support import define
from tests.testapp.models import Order

pytestmark = pytest.mark.usefixtures("classes_forgotten")

REFUSED = {
    "no app": ("class Made(Workflow): pass", "Set Meta.app_label"),
    "no app, abstract": (
        """
        class Made(Workflow):
            class Meta:
                abstract = True
        """,
        "Set Meta.app_label",
    ),
    "abstract neither way": (
        """
        class Made(Base):
            class Meta(Base.Meta):
                abstract = "yes"
        """,
        "Meta.abstract='yes'",
    ),
    "a label that is too long": (f"class Made{'e' * 140}(Base): pass", "longer than 150"),
    "a field": (
        """
        class Made(Base):
            note = models.CharField(max_length=5)
        """,
        "the field 'note'",
        "metadata",
    ),
    "a foreign key": (
        """
        class Made(Base):
            order = models.ForeignKey("testapp.Order", models.CASCADE, related_name="made")
        """,
        "the field 'order'",
    ),
    "a field of a plain mixin": (
        """
        class Mixin:
            note = models.CharField(max_length=5)
        class Made(Mixin, Base):
            class Meta(Base.Meta): pass
        """,
        "the field 'note' (inherited from shop.workflows.Mixin)",
    ),
    "a field of an abstract model": (
        """
        class Mixin(models.Model):
            note = models.CharField(max_length=5)
            class Meta:
                abstract = True
        class Made(Mixin, Base):
            class Meta(Base.Meta): pass
        """,
        "the field 'note' (inherited from shop.workflows.Mixin)",
    ),
    "a model with a table": ("class Made(Order, Base): pass", "testapp.Order is a model with its own table"),
    "a manager that is not ours": (
        """
        class Made(Base):
            objects = models.Manager()
        """,
        "the manager 'objects'",
        "geneva_drive.models.querysets.WorkflowManager",
    ),
    "a manager of an abstract model": (
        """
        class Mixin(models.Model):
            all_rows = models.Manager()
            class Meta:
                abstract = True
        class Made(Mixin, Base):
            class Meta(Base.Meta): pass
        """,
        "the manager 'all_rows' (inherited from shop.workflows.Mixin)",
    ),
    "a value over a column": ("class Made(Base): state = 'ready'", "'state' would hide a column"),
    "a value over the hero": ("class Made(Base): hero = None", "'hero' would hide a column", "annotate"),
    "a mixin's value over a column": (
        """
        class Mixin:
            hero_id = 5
        class Made(Mixin, Base): pass
        """,
        "'hero_id' (inherited from shop.workflows.Mixin)",
    ),
    "own steps": ("class Made(Base): steps = []", "'steps' is made from the steps"),
    "job options that are unknown": (
        "class Made(Base): job_options = {'quue': 'x'}",
        "Made.job_options",
        "'quue'",
    ),
    "job options that are no dict": ("class Made(Base): job_options = 'mail'", "Made.job_options: 'mail'"),
    "job options of a mixin": (
        """
        class Mixin:
            job_options = {"priority": True}
        class Made(Mixin, Base): pass
        """,
        "Made.job_options: priority=True",
    ),
    "a hero model without an app": (
        "class Made(Base): hero_model = 'Order'",
        "hero_model='Order'",
        "app_label",
    ),
    "a hero model that is no model": ("class Made(Base): hero_model = dict", "hero_model=<class 'dict'>"),
    "a hero model that is a row": ("class Made(Base): hero_model = Order()", "hero_model=<Order"),
    "a hero model that is abstract": (
        """
        class Mixin(models.Model):
            class Meta:
                abstract = True
        class Made(Base):
            hero_model = Mixin
        """,
        "hero_model=<class 'shop.workflows.Mixin'>",
    ),
    "heroless neither way": (
        "class Made(Base): may_proceed_without_hero = 'no'",
        "may_proceed_without_hero='no' is neither True nor False",
    ),
    "former types that are a text": (
        "class Made(Base): former_types = 'testapp.Old'",
        "'testapp.Old' is not a list",
    ),
    "a former type without an app": (
        "class Made(Base): former_types = ['Old']",
        "'Old'",
        "app_label.ClassName",
    ),
    "a former type that is a class": ("class Made(Base): former_types = [Order]", "testapp.models.Order"),
    "its own type as a former one": ("class Made(Base): former_types = ['testapp.Made']", "type now"),
    "a former type twice": ("class Made(Base): former_types = ['a.B', 'a.B']", "twice"),
    "a former type that lives": (
        "class Made(Base): former_types = ['testapp.FiveSteps']",
        "tests.testapp.workflows.FiveSteps",
    ),
    "the label of another module": (
        "class FiveSteps(Base): pass",
        "shop.workflows.FiveSteps",
        "tests.testapp.workflows.FiveSteps",
        "Rename one",
    ),
    "the label of another module, but for case": (
        "class Fivesteps(Base): pass",
        "shop.workflows.Fivesteps",
        "tests.testapp.workflows.FiveSteps",
    ),
    "the label of a model": ("class Order(Base): pass", "shop.workflows.Order", "tests.testapp.models.Order"),
    "the label of an abstract class": (
        "class Base(Base): pass",
        "shop.workflows.Base",
        "tests.definition.support.Base",
    ),
    "a hook that is async": (
        """
        class Made(Base):
            async def before_step(self, execution): ...
        """,
        "before_step: it is async",
    ),
    "a hook with other arguments": (
        """
        class Made(Base):
            def after_step(self): ...
        """,
        "after_step:",
        "(self, execution)",
    ),
    "a hook that is a generator": (
        """
        class Made(Base):
            def around_step(self, execution):
                yield
        """,
        "contextlib.contextmanager",
    ),
    "a hook that is nothing": ("class Made(Base): before_step = None", "before_step: None is not a function"),
}


@pytest.mark.parametrize(
    ("source", "says"), [(each[0], each[1:]) for each in REFUSED.values()], ids=REFUSED.keys()
)
def test_a_class_that_cannot_work_is_refused_before_it_is_created(source: str, says: tuple[str, ...]) -> None:
    known = registry.all(), {label: set(by_name) for label, by_name in apps.all_models.items()}
    relations = len(Order._meta.related_objects)

    with pytest.raises(StepConfigurationError) as caught:
        define(source, models=models, Order=Order)

    for part in says:
        assert part in str(caught.value)
    assert "shop.workflows." in str(caught.value)
    assert known == (registry.all(), {label: set(by_name) for label, by_name in apps.all_models.items()})
    assert len(Order._meta.related_objects) == relations
