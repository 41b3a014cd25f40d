"""The attributes of a workflow class: its hero model, job options and hooks, and how they are inherited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from geneva_drive import StepConfigurationError, step
from tests.definition.support import Base, define
from tests.testapp.models import Order, Ticket

pytestmark = pytest.mark.usefixtures("classes_forgotten")


@pytest.mark.parametrize(("value", "model"), [("testapp.Order", Order), (Order, Order), (None, None)])
def test_the_hero_model_is_a_model_or_its_name(value: Any, model: Any) -> None:
    cls = define("class Made(Base): hero_model = value", value=value)

    assert cls._geneva.resolve_hero_model() is model


def test_a_hero_model_that_is_not_installed_is_reported_when_it_is_needed() -> None:
    cls = define("class Made(Base): hero_model = 'testapp.Gone'")

    with pytest.raises(
        StepConfigurationError, match=r"testapp\.Made: hero_model='testapp\.Gone'.*INSTALLED_APPS"
    ):
        cls._geneva.resolve_hero_model()


def test_class_attributes_are_inherited_and_can_be_reset() -> None:
    class Mixin:
        job_options = {"queue": "mixed", "wait": timedelta(1)}

    class Parent(Base):
        hero_model: ClassVar[Any] = Ticket
        may_proceed_without_hero = True
        job_options = {"queue": "mail"}

    class Child(Parent):
        pass

    class Reset(Parent):
        hero_model: ClassVar[Any] = None
        may_proceed_without_hero = False
        job_options: dict[str, Any] = {}

    class Grandchild(Reset):
        pass

    class Mixed(Mixin, Parent):
        pass

    class MixedLater(Parent, Mixin):
        pass

    assert Child._geneva.hero_model is Ticket
    assert Child._geneva.may_proceed_without_hero
    assert Child._geneva.job_options == {"queue": "mail"}
    for cls in (Reset, Grandchild):
        assert cls._geneva.hero_model is None
        assert not cls._geneva.may_proceed_without_hero
        assert cls._geneva.job_options == {}
    assert Mixed._geneva.job_options == {"queue": "mixed", "wait": timedelta(1)}
    assert MixedLater._geneva.job_options == {"queue": "mail"}


@pytest.mark.django_db
def test_job_options_of_a_class_do_not_hide_those_of_its_rows() -> None:
    class Mixin:
        job_options = {"queue": "mixed"}

    class Made(Mixin, Base):
        may_proceed_without_hero = True
        job_options = {"queue": "mail"}

        @step
        def ship(self) -> None: ...

    class Mixed(Mixin, Base):
        may_proceed_without_hero = True

        @step
        def ship(self) -> None: ...

    for cls in (Made, Mixed):
        row = cls.start(job_options={"priority": 3})
        assert cls.objects.defer("job_options").get(pk=row.pk).job_options == {"priority": 3}
        assert cls().job_options is None


@pytest.mark.parametrize("hook", ["before_step", "after_step", "around_step"])
def test_a_class_knows_which_hooks_it_overrides(hook: str) -> None:
    @contextmanager
    def around(self: Any, execution: Any) -> Iterator[None]:
        yield

    made = define(f"class Made(Base): {hook} = hook", hook=around)
    mixin = type("Mixin", (), {hook: lambda self, execution: None})
    mixed = define("class Mixed(Mixin, Base): pass", Mixin=mixin)
    child = define("class Child(Made): pass", Made=made)

    for cls in (made, mixed, child):
        assert cls._geneva.hooks == {hook}
    assert Base._geneva.hooks == set()
