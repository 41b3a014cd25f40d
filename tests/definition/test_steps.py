"""How steps are declared, and what the definition contains."""

from __future__ import annotations

import enum
import pickle
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from geneva_drive import removed_step, step
from geneva_drive.definition.collection import StepDefinition
from tests.definition.support import FILE, Base, define


class Queue(str, enum.Enum):  # noqa: UP042 - its text is not its value, which is the point
    MAIL = "mail"


@pytest.mark.parametrize(
    "decorator",
    ["@step", "@step()", "@step(wait=None, skip_if=None, queue=None, atomic=None, formerly=None)"],
)
def test_a_step_without_options_has_the_defaults(decorator: str) -> None:
    cls = define(f"""
        class Defaults(Base):
            {decorator}
            def ship(self): ...
    """)

    ship = cls.steps["ship"]

    assert (ship.name, ship.function) == ("ship", "ship")
    assert ship.wait == timedelta(0)
    assert (ship.skip_if, ship.queue, ship.priority, ship.on_crash) == (None, None, None, None)
    assert (ship.atomic, ship.resumable, ship.is_async, ship.removed) == (False, False, False, False)
    assert (ship.formerly, ship.options) == ((), {})
    assert ship.is_runnable
    assert not ship.conditional


def test_every_option_is_kept() -> None:
    class Options(Base):
        @step
        def first(self) -> None: ...

        @step(
            wait=timedelta(hours=1),
            skip_if=lambda workflow: True,
            after="first",
            formerly=["old", "older"],
            atomic=True,
            queue=Queue.MAIL,
            priority=-3,
            on_crash="pause",
        )
        def ship(self) -> None: ...

    ship = Options.steps["ship"]

    assert ship.wait == timedelta(hours=1)
    assert ship.conditional
    assert Options.steps.names == ("first", "ship")
    assert ship.formerly == ("old", "older")
    assert ship.atomic
    assert (ship.queue, type(ship.queue)) == ("mail", str)
    assert ship.priority == -3
    assert ship.on_crash == "pause"
    assert ship.options == {"queue": "mail", "priority": -3, "wait": timedelta(hours=1)}


def test_the_decorator_can_be_called_with_parentheses() -> None:
    def from_outside(workflow: Any) -> str:
        return "outside"

    class WrittenOut(Base):
        def inner(self) -> str:
            return "inner"

        inner = step(inner, priority=1)
        outer = step(from_outside)

    assert WrittenOut.steps.names == ("inner", "outer")
    assert WrittenOut.steps["inner"].priority == 1
    assert (WrittenOut().inner(), WrittenOut().outer()) == ("inner", "outside")


def test_a_step_stays_a_method_of_the_class() -> None:
    class Callable(Base):
        @step
        def ship(self, parcel: str = "none") -> str:
            """Send it."""
            return f"shipped {parcel}"

    assert Callable().ship("one") == "shipped one"
    assert Callable.ship.__doc__ == "Send it."


def test_async_steps_are_recognized() -> None:
    class Async(Base):
        @step
        async def later(self) -> None: ...

        @step
        @sync_to_async
        def threaded(self) -> None: ...

        @step
        def now(self) -> None: ...

    assert Async.steps["later"].is_async
    assert Async.steps["threaded"].is_async
    assert not Async.steps["now"].is_async


def test_a_series_makes_a_step_for_each_wait() -> None:
    class Polling(Base):
        def ask(self) -> str:
            return f"asked by {type(self).__name__}"

        polls = step.series(
            ask, waits=(timedelta(seconds=30 * number) for number in range(3)), queue="slow", run_if="is_open"
        )

        def is_open(self) -> bool:
            return True

        @step
        def done(self) -> None: ...

    class Again(Polling):
        """Declares the same series again."""

    for cls in (Polling, Again):
        assert cls.steps.names == ("polls_1", "polls_2", "polls_3", "done")
        assert [each.wait.total_seconds() for each in cls.steps][:3] == [0, 30, 60]
        assert cls.steps["polls_3"].options == {"queue": "slow", "wait": timedelta(seconds=60)}
        assert cls.steps["polls_2"].conditional
        second = str(cls.steps["polls_2"].function)
        assert getattr(cls(), second)() == f"asked by {cls.__name__}"
    assert not hasattr(Polling, "polls")


def test_a_series_is_placed_as_a_whole() -> None:
    cls = define("""
        def ask(workflow): ...
        class Placed(Base):
            @step
            def first(self): ...
            @step
            def last(self): ...
            polls = step.series(ask, waits=[timedelta(0)] * 3, before="last")
            checks = step.series(ask, waits=[timedelta(0)] * 2, after="first")
    """)

    assert cls.steps.names == ("first", "checks_1", "checks_2", "polls_1", "polls_2", "polls_3", "last")


def test_a_gravestone_is_declared_but_cannot_run() -> None:
    class Buried(Base):
        capture = removed_step()

    capture = Buried.steps["capture"]

    assert capture.removed
    assert not capture.is_runnable
    assert capture.function is None
    assert not hasattr(Buried, "capture")


@pytest.mark.parametrize("name", ["plain", "optioned", "gone", "polls_1"])
def test_a_step_knows_the_line_that_declares_it(name: str) -> None:
    cls = define("""
        class Located(Base):
            @step
            def plain(self): ...
            @step(
                priority=1,
            )
            def optioned(self): ...
            gone = removed_step()
            polls = step.series(lambda workflow: None, waits=[timedelta(0)])
    """)

    lines = {"plain": 2, "optioned": 4, "gone": 8, "polls_1": 9}

    assert str(cls.steps[name].location) == f"{FILE}:{lines[name]}"


def test_a_definition_cannot_be_changed() -> None:
    definition = StepDefinition("ship")

    with pytest.raises(AttributeError):
        definition.wait = timedelta(1)  # type: ignore[misc]


def test_a_definition_can_be_hashed_and_pickled() -> None:
    definition = StepDefinition("ship", options={"queue": "mail"})

    assert pickle.loads(pickle.dumps(definition)) == definition
    assert hash(definition) == hash(StepDefinition("ship"))
