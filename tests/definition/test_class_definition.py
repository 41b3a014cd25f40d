"""The order of steps: within a class, with before= and after=, in subclasses and mixins."""

from __future__ import annotations

import pytest

from tests.definition.support import define

ORDERS = {
    "the class body gives the order": (
        """
        class Made(Base):
            @step
            def b(self): ...
            a = removed_step()
            @step
            def c(self): ...
        """,
        "b a c",
    ),
    "a neighbour gives the place": (
        """
        class Made(Base):
            @step
            def a(self): ...
            @step
            def b(self): ...
            @step(before="a")
            def first(self): ...
            @step(after="a")
            def second(self): ...
        """,
        "first a second b",
    ),
    "a gravestone can be a neighbour": (
        """
        class Made(Base):
            gone = removed_step()
            @step
            def b(self): ...
            @step(after="gone")
            def after_gone(self): ...
            @step(before="gone")
            def before_gone(self): ...
        """,
        "before_gone gone after_gone b",
    ),
    "inherited steps come first": (
        """
        class Parent(Base):
            @step
            def a(self): ...
        class Made(Parent):
            @step
            def b(self): ...
            @step(before="a")
            def first(self): ...
        """,
        "first a b",
    ),
    "a step that is declared again keeps its place": (
        """
        class Parent(Base):
            @step
            def a(self): ...
            @step
            def b(self): ...
        class Made(Parent):
            @step
            def c(self): ...
            @step(priority=1)
            def a(self): ...
        """,
        "a b c",
    ),
    "a step that is declared again next to another one moves": (
        """
        class Parent(Base):
            @step
            def a(self): ...
            @step
            def b(self): ...
            @step
            def c(self): ...
        class Made(Parent):
            @step(after="b")
            def a(self): ...
        """,
        "b a c",
    ),
    "a buried step keeps its place": (
        """
        class Parent(Base):
            @step
            def a(self): ...
            @step
            def b(self): ...
        class Made(Parent):
            a = removed_step()
            @step(after="a")
            def new(self): ...
        """,
        "a new b",
    ),
    "a series that is declared again grows in its place": (
        """
        class Parent(Base):
            polls = step.series(lambda workflow: None, waits=[timedelta(0)] * 2)
            @step
            def last(self): ...
        class Made(Parent):
            polls = step.series(lambda workflow: None, waits=[timedelta(1)] * 3)
        """,
        "polls_1 polls_2 polls_3 last",
    ),
    "a series that is declared again shrinks by gravestones": (
        """
        class Parent(Base):
            polls = step.series(lambda workflow: None, waits=[timedelta(0)] * 3)
            @step
            def last(self): ...
        class Made(Parent):
            polls = step.series(lambda workflow: None, waits=[timedelta(1)] * 2)
            polls_3 = removed_step()
        """,
        "polls_1 polls_2 polls_3 last",
    ),
    "a series that is declared again next to another step moves": (
        """
        class Parent(Base):
            polls = step.series(lambda workflow: None, waits=[timedelta(0)] * 2)
            @step
            def last(self): ...
        class Made(Parent):
            polls = step.series(lambda workflow: None, waits=[timedelta(1)] * 2, after="last")
        """,
        "last polls_1 polls_2",
    ),
    "a plain mixin gives steps after those of the class it is mixed into": (
        """
        class Audited:
            @step
            def audit(self): ...
            @step(before="a")
            def announce(self): ...
        class Parent(Base):
            @step
            def a(self): ...
        class Made(Audited, Parent):
            @step
            def c(self): ...
        """,
        "announce a audit c",
    ),
    "two parents of one grandparent": (
        """
        class Top(Base):
            @step
            def top(self): ...
        class Left(Top):
            @step
            def left(self): ...
        class Right(Top):
            @step
            def right(self): ...
        class Made(Left, Right):
            @step
            def made(self): ...
        """,
        "top right left made",
    ),
    "an abstract base shares its steps": (
        """
        class Parent(Base):
            class Meta(Base.Meta):
                abstract = True
            @step
            def a(self): ...
        class Made(Parent):
            @step
            def b(self): ...
        """,
        "a b",
    ),
}


@pytest.mark.parametrize(("source", "order"), ORDERS.values(), ids=ORDERS.keys())
def test_steps_are_in_the_declared_order(source: str, order: str) -> None:
    assert define(source).steps.names == tuple(order.split())


def test_a_subclass_can_override_the_method_and_keep_the_options() -> None:
    cls = define("""
        class Parent(Base):
            @step(wait=timedelta(hours=1), queue="slow")
            def ship(self):
                return "parent"
        class Made(Parent):
            async def ship(self):
                return "made"
        class Calling(Parent):
            def ship(self):
                return "calling " + super().ship()
    """)
    parent = cls.__mro__[1]
    made = next(each for each in parent.__subclasses__() if each.__name__ == "Made")

    assert cls().ship() == "calling parent"
    assert cls.steps["ship"] == parent.steps["ship"]
    assert made.steps["ship"].is_async
    assert made.steps["ship"].wait == parent.steps["ship"].wait


def test_a_mixin_can_override_the_method() -> None:
    cls = define("""
        class Parent(Base):
            @step(priority=4)
            def ship(self):
                return "parent"
        class Louder:
            def ship(self):
                return super().ship().upper()
        class Made(Louder, Parent):
            pass
    """)

    assert cls().ship() == "PARENT"
    assert cls.steps["ship"].priority == 4


def test_steps_of_a_plain_mixin_can_be_called_and_overridden_with_super() -> None:
    cls = define("""
        class Audited:
            @step
            def audit(self):
                return "audited"
            @cancel_if
            def withdrawn(self):
                return False
            polls = step.series(lambda workflow: "polled", waits=[timedelta(0)] * 2)
        class Made(Audited, Base):
            def audit(self):
                return "made " + super().audit()
            def withdrawn(self):
                return not super().withdrawn()
    """)

    assert cls().audit() == "made audited"
    assert cls().polls_2() == "polled"
    assert cls._geneva.cancel_conditions[0].evaluate(cls())


def test_a_removed_step_can_be_declared_again() -> None:
    cls = define("""
        class Parent(Base):
            @step
            def a(self): ...
        class Burying(Parent):
            a = removed_step()
        class Made(Burying):
            @step
            def a(self):
                return "back"
    """)

    assert cls.steps["a"].is_runnable
    assert cls().a() == "back"
    assert not cls.__mro__[1].steps["a"].is_runnable


def test_a_subclass_does_not_change_its_parent() -> None:
    cls = define("""
        class Parent(Base):
            @step
            def a(self): ...
        class Made(Parent):
            a = removed_step()
            @step
            def b(self): ...
    """)

    assert cls.__mro__[1].steps.names == ("a",)
    assert cls.__mro__[1].steps["a"].is_runnable


def test_a_subclass_need_not_satisfy_options_it_replaces() -> None:
    cls = define("""
        class Parent(Base):
            @step(skip_if="no_email")
            def send(self): ...
            def no_email(self): ...
        class Made(Parent):
            no_email = None
            @step
            def send(self): ...
    """)

    assert not cls.steps["send"].conditional
