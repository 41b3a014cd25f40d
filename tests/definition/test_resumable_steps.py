"""How resumable steps are declared."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from geneva_drive import StepConfigurationError, resumable_step
from tests.definition.support import FILE, Base, define


def make(declaration: str, *, function: str = "def send(self, iteration): ...") -> Any:
    return define(f"class Made(Base):\n    {declaration}\n    {function}", resumable_step=resumable_step)


def test_by_default_it_writes_after_each_item_and_has_no_limit() -> None:
    send = make("@resumable_step").steps["send"]

    assert send.resumable
    assert (send.max_iterations, send.max_runtime, send.checkpoint_every) == (None, None, 1)
    assert make("@resumable_step()").steps["send"] == send


def test_every_option_is_kept_together_with_the_options_of_a_step() -> None:
    send = make(
        "@resumable_step(max_iterations=10, max_runtime=timedelta(minutes=5), checkpoint_every=timedelta(seconds=2),"
        " wait=timedelta(hours=1), queue='mail', formerly=['mail_all'], on_crash='pause')"
    ).steps["send"]

    assert (send.max_iterations, send.max_runtime) == (10, timedelta(minutes=5))
    assert send.checkpoint_every == timedelta(seconds=2)
    assert (send.wait, send.queue, send.formerly, send.on_crash) == (
        timedelta(hours=1),
        "mail",
        ("mail_all",),
        "pause",
    )


def test_none_means_the_default() -> None:
    send = make("@resumable_step(max_iterations=None, max_runtime=None, checkpoint_every=None)").steps["send"]

    assert (send.max_iterations, send.max_runtime, send.checkpoint_every) == (None, None, 1)


def test_a_series_can_be_resumable() -> None:
    made = define(
        """
        def send(self, iteration): ...

        class Made(Base):
            rounds = resumable_step.series(send, waits=2 * [timedelta(0)], max_iterations=5)
        """,
        resumable_step=resumable_step,
    )

    assert [(each.name, each.resumable, each.max_iterations) for each in made.steps] == [
        ("rounds_1", True, 5),
        ("rounds_2", True, 5),
    ]


def test_a_subclass_can_override_the_method() -> None:
    class Parent(Base):
        @resumable_step(max_iterations=3)
        def send(self, iteration: Any) -> None: ...

    class Child(Parent):
        def send(self, iteration: Any) -> None: ...

    assert Child.steps["send"].max_iterations == 3

    with pytest.raises(StepConfigurationError, match="takes"):

        class Wrong(Parent):
            def send(self) -> None: ...  # type: ignore[override]


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("max_iterations=0", "let no item through"),
        ("max_iterations=-1", "let no item through"),
        ("max_iterations=True", "an integer of 1 or more"),
        ("max_iterations=2.5", "an integer of 1 or more"),
        ("max_iterations='5'", "an integer of 1 or more"),
        ("max_runtime=30", "timedelta"),
        ("max_runtime=timedelta(0)", "is zero"),
        ("max_runtime=timedelta(seconds=-1)", "negative"),
        ("max_runtime=timedelta.max", "shorter"),
        ("checkpoint_every=0", "let no item through"),
        ("checkpoint_every=False", "neither a number of items nor a timedelta"),
        ("checkpoint_every=1.5", "neither a number of items nor a timedelta"),
        ("checkpoint_every=timedelta(0)", "is zero"),
        ("checkpoint_every=timedelta(seconds=-1)", "negative"),
        ("atomic=True", "Leave it out"),
        ("max_iteration=1", "not an option of a step"),
        ("'send'", "takes its name from the method"),
    ],
)
def test_a_wrong_option_is_refused_with_its_place_and_value(written: str, says: str) -> None:
    with pytest.raises(StepConfigurationError) as refused:
        make(f"@resumable_step({written})")

    message = str(refused.value)
    assert message.startswith("shop.workflows.Made, step 'send': ")
    assert says in message
    assert f"({FILE}:2)" in message
    assert written.partition("=")[0].strip("'") in message


@pytest.mark.parametrize("written", ["max_iterations=5", "max_runtime=timedelta(1)", "checkpoint_every=5"])
def test_options_for_loops_are_refused_on_a_plain_step(written: str) -> None:
    with pytest.raises(StepConfigurationError, match="Declare it with @resumable_step"):
        make(f"@step({written})", function="def send(self): ...")


def test_atomic_false_is_accepted() -> None:
    assert not make("@resumable_step(atomic=False)").steps["send"].atomic


def test_the_list_of_options_includes_those_for_loops() -> None:
    with pytest.raises(StepConfigurationError) as refused:
        make("@resumable_step(nothing=1)")

    assert "max_iterations, max_runtime, checkpoint_every" in str(refused.value)
    assert "atomic" not in str(refused.value)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("def send(self): ...", "(self, iteration)"),
        ("def send(self, iteration, more): ...", "(self, iteration)"),
        ("def send(self, *, iteration): ...", "(self, iteration)"),
        ("def send(self, iteration): yield", "generator"),
        ("async def send(self, iteration): ...", "async_to_sync"),
    ],
)
def test_a_body_must_accept_the_iteration_and_nothing_else(function: str, says: str) -> None:
    with pytest.raises(StepConfigurationError) as refused:
        make("@resumable_step", function=function)

    assert says in str(refused.value)


def test_a_plain_step_must_not_accept_an_iteration() -> None:
    with pytest.raises(StepConfigurationError, match="Change what it takes"):
        make("@step")
