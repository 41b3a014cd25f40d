"""``wait_for``, ``timeout``, ``on_timeout``."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from geneva_drive import SignalMatcher, StepConfigurationError
from geneva_drive.definition.matchers import describe, name_to_look_for, signal_matches
from tests.definition.support import define


def one_step(options: str, **names: Any) -> Any:
    """Return the definition of a step with these options."""
    cls = define(
        f"""
        class Waits(Base):
            @step({options})
            def ship(self): pass
        """,
        SignalMatcher=SignalMatcher,
        **names,
    )
    return cls.steps["ship"]


def refusal(options: str, **names: Any) -> str:
    """Return the error message about a step with these options."""
    with pytest.raises(StepConfigurationError) as caught:
        one_step(options, **names)
    return str(caught.value)


class Anything:
    """A matcher that accepts anything."""

    def matches(self, signal: Any) -> bool:
        """Always."""
        return True


def test_a_name_is_short_for_a_matcher_of_that_name() -> None:
    step = one_step("wait_for='paid'")

    assert step.wait_for == SignalMatcher("paid")
    assert step.conditional


def test_a_step_waits_for_nothing_by_default() -> None:
    step = one_step("")

    assert (step.wait_for, step.timeout, step.on_timeout, step.conditional) == (None, None, None, False)


def test_any_object_with_matches_is_accepted_unchanged() -> None:
    matcher = Anything()

    assert one_step("wait_for=matcher", matcher=matcher).wait_for is matcher


def test_timeout_and_on_timeout_are_kept() -> None:
    step = one_step("wait=timedelta(1), wait_for='paid', timeout=timedelta(days=7), on_timeout='skip'")

    assert (step.wait, step.timeout, step.on_timeout) == (timedelta(1), timedelta(days=7), "skip")


@pytest.mark.parametrize("value", ["timedelta(days=1)", "5", "2.5"])
def test_wait_for_with_a_duration_suggests_wait(value: str) -> None:
    complaint = refusal(f"wait_for={value}")

    assert "say wait=" in complaint
    assert "say timeout=" in complaint
    assert "step 'ship'" in complaint


def test_wait_with_a_name_suggests_wait_for() -> None:
    assert "say wait_for='paid'" in refusal("wait='paid'")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("wait_for=''", "is empty"),
        ("wait_for='x' * 151", "at most 150"),
        ("wait_for=['paid', 'waived']", "an object with matches(signal)"),
        ("wait_for=matcher", "not a matcher"),
        ("wait_for=object()", "not a matcher"),
        ("wait_for=False", "not a matcher"),
        ("wait_for=lambda signal: True", "not a matcher"),
        ("wait_for=wrong", "called with (signal)"),
        ("wait_for=late", "async"),
        ("timeout=timedelta(1)", "without wait_for="),
        ("wait_for='paid', timeout=timedelta(-1)", "negative"),
        ("wait_for='paid', timeout=5", "not a duration"),
        ("wait_for='paid', on_timeout='skip'", "without timeout="),
        ("wait_for='paid', timeout=timedelta(1), on_timeout='explode'", "skip, cancel, pause"),
        ("wait_for=SignalMatcher('')", "is empty"),
        ("wait_for=SignalMatcher('paid', 5)", "not callable"),
        ("wait_for=SignalMatcher('paid', lambda payload: True)", "called with (workflow, payload)"),
        ("wait_for=SignalMatcher('paid', later)", "async"),
    ],
)
def test_a_mistake_is_reported_when_the_class_is_created(options: str, expected: str) -> None:
    async def later(workflow: Any, payload: Any) -> bool:
        return True

    class Late:
        async def matches(self, signal: Any) -> bool:
            return True

    names = {
        "matcher": Anything,
        "wrong": SimpleNamespace(matches=lambda: True),
        "late": Late(),
        "later": later,
    }

    assert expected in refusal(options, **names)


def test_a_condition_is_called_with_workflow_and_payload() -> None:
    seen: list[Any] = []

    def holds(workflow: Any, payload: Any) -> Any:
        seen.append((workflow, payload))
        return payload

    matcher = SignalMatcher("paid", holds)
    signal = SimpleNamespace(name="paid", payload=[1], workflow="the workflow")

    assert signal_matches(matcher, signal)
    assert not signal_matches(matcher, SimpleNamespace(name="paid", payload=[], workflow=None))
    assert not signal_matches(matcher, SimpleNamespace(name="Paid", payload=[1], workflow=None))
    assert seen == [("the workflow", [1]), (None, [])]


def test_an_awaitable_result_is_refused() -> None:
    async def answer() -> bool:
        return True

    matcher = SignalMatcher("paid", lambda workflow, payload: answer())

    with pytest.raises(TypeError, match="awaitable"):
        signal_matches(matcher, SimpleNamespace(name="paid", payload=None, workflow=None))


def test_a_matcher_can_be_described() -> None:
    class Named(Anything):
        name = "a name"

    class Texted(Anything):
        def __str__(self) -> str:
            return "a text"

    assert [describe(each) for each in (SignalMatcher("paid"), Anything(), Named(), Texted())] == [
        "paid",
        "Anything",
        "a name",
        "a text",
    ]


def test_only_a_plain_name_matcher_is_queried_by_its_name() -> None:
    class Broader(SignalMatcher):
        def matches(self, signal: Any) -> bool:
            return True

    assert name_to_look_for(SignalMatcher("paid")) == "paid"
    assert name_to_look_for(Broader("paid")) is None
    assert name_to_look_for(Anything()) is None
