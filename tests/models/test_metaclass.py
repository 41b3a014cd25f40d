"""Workflow classes are created like other Python and Django classes; and which class replaces which."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from django.apps import apps
from django.db import models

from geneva_drive import Workflow, removed_step, step
from geneva_drive.definition.registry import registry
from geneva_drive.models.querysets import WorkflowManager
from tests.definition.support import Base, define

pytestmark = pytest.mark.usefixtures("classes_forgotten")


def test_an_own_manager_that_inherits_ours() -> None:
    class LoudManager(WorkflowManager):
        def loud(self) -> str:
            return "loud"

    class Made(Base):
        objects = LoudManager()

    assert Made.objects.loud() == "loud"
    assert isinstance(Made._default_manager, LoudManager)


def test_ordinary_mixins_without_fields() -> None:
    class Plain:
        flavour = "plain"

    class Abstract(models.Model):
        class Meta:
            abstract = True

        def shout(self) -> str:
            return "shout"

    class Made(Plain, Abstract, Base):  # noqa: DJ008 - Workflow has it
        class Meta(Base.Meta):
            pass

        @step
        def ship(self) -> None: ...

    assert (Made().flavour, Made().shout()) == ("plain", "shout")
    assert Made._meta.proxy
    assert Made._meta.concrete_model is Workflow
    assert Made._meta.app_label == "testapp"


def test_class_keywords_and_init_subclass_reach_python() -> None:
    class Tagged:
        tag: str

        def __init_subclass__(cls, *, tag: str = "none", **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            cls.tag = tag

    class Made(Tagged, Base, tag="made"):
        def own_class(self) -> type:
            return __class__  # type: ignore[name-defined, no-any-return]

    assert Made.tag == "made"
    assert Made().own_class() is Made


def test_a_class_can_be_created_with_type() -> None:
    metaclass: Any = type(Workflow)

    made = metaclass(
        "Made",
        (Base,),
        {"__module__": __name__, "ship": step(lambda workflow: "shipped"), "old": removed_step()},
    )

    assert made.steps.names == ("ship", "old")
    assert made().ship() == "shipped"


def test_a_class_with_the_same_module_and_name_replaces_its_predecessor() -> None:
    source = """
        class Made(Base):
            former_types = ["testapp.Older"]
            @step
            def ship(self): ...
    """
    first = define(source)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = define(source)

    assert first is not second
    assert registry.get("testapp.Made") is second
    assert registry.get("testapp.Older") is second
    assert apps.all_models["testapp"]["made"] is second


def test_a_class_that_becomes_abstract_is_no_longer_a_type() -> None:
    define("class Made(Base): pass")

    define(
        """
        class Made(Base):
            class Meta(Base.Meta):
                abstract = True
        """
    )

    assert registry.get("testapp.Made") is None


def test_a_class_that_django_refuses_does_not_replace_its_predecessor() -> None:
    good = define("class Made(Base): pass")

    class Refusing:
        def __init_subclass__(cls, **kwargs: Any) -> None:
            raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        define("class Made(Refusing, Base): pass", Refusing=Refusing)

    assert registry.get("testapp.Made") is good
    assert apps.all_models["testapp"]["made"] is good


def test_inconsistent_bases_are_refused_by_python() -> None:
    class Parent(Base):
        pass

    with pytest.raises(TypeError, match="MRO"):
        define("class Made(Base, Parent): pass", Parent=Parent)


def test_the_base_class_has_no_steps_and_is_no_type() -> None:
    assert Workflow._geneva.is_base
    assert not Workflow._geneva.is_startable
    assert len(Workflow.steps) == 0
    assert registry.get("geneva_drive.Workflow") is None
    assert Workflow not in registry.all()
