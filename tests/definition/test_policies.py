"""How exception policies are declared, and what is refused when the class is created."""

from __future__ import annotations

import textwrap
from datetime import timedelta
from typing import Any

import pytest

from geneva_drive import ExceptionPolicy, StepConfigurationError, on_exception
from geneva_drive.definition.policies import DEFAULT_MAX_REATTEMPTS, Policy, PolicyAction, Report
from tests.definition.support import FILE, define


class Matching:
    """Matches with its own method."""

    def matches(self, error: Exception) -> bool:
        return "again" in str(error)


def make(source: str, **names: Any) -> Any:
    return define(
        source, ExceptionPolicy=ExceptionPolicy, on_exception=on_exception, Matching=Matching, **names
    )


def of_step(written: str, **names: Any) -> tuple[Policy, ...]:
    """Return the policies of a step with this ``on_exception``."""
    cls = make(f"class Made(Base):\n    @step(on_exception={written})\n    def ship(self): ...", **names)
    policies: tuple[Policy, ...] = cls.steps["ship"].policies
    return policies


def in_class(body: str, **names: Any) -> tuple[Policy, ...]:
    """Return the policies of a class with this body."""
    cls = make("class Made(Base):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    "), **names)
    policies: tuple[Policy, ...] = cls._geneva.policies
    return policies


# -- valid declarations


@pytest.mark.parametrize("action", ["pause", "cancel", "skip", "reattempt"])
def test_the_short_form_is_a_blanket_policy(action: str) -> None:
    (policy,) = of_step(repr(action))

    assert policy == Policy(action=PolicyAction(action), name=action)
    assert policy.is_blanket
    assert policy.cap == DEFAULT_MAX_REATTEMPTS == 100
    assert policy.terminal_action is PolicyAction.PAUSE
    assert policy.wait_before(1) == timedelta(0)


def test_a_step_without_on_exception_has_no_policy() -> None:
    assert of_step("None") == ()


def test_all_reattempt_options_are_kept() -> None:
    (policy,) = of_step(
        "ExceptionPolicy('reattempt', matching=TimeoutError, wait=timedelta(minutes=5), max_reattempts=7, "
        "terminal_action='skip', report='terminal_only')"
    )

    assert policy.action is PolicyAction.REATTEMPT
    assert policy.matchers == (TimeoutError,)
    assert policy.wait_before(3) == timedelta(minutes=5)
    assert policy.cap == 7
    assert policy.terminal_action is PolicyAction.SKIP
    assert policy.report is Report.TERMINAL_ONLY


@pytest.mark.parametrize(
    ("written", "cap"), [("", 100), ("max_reattempts=None", None), ("max_reattempts=0", 0)]
)
def test_none_means_no_limit(written: str, cap: int | None) -> None:
    (policy,) = of_step(f"ExceptionPolicy('reattempt', {written})")

    assert policy.cap == cap


def test_a_wait_can_be_named_or_computed() -> None:
    (named,) = of_step("ExceptionPolicy('reattempt', wait='polynomial')")
    (computed,) = of_step("ExceptionPolicy('reattempt', wait=lambda attempt: timedelta(hours=attempt))")

    assert timedelta(seconds=2) < named.wait_before(1) <= timedelta(seconds=3)
    assert computed.wait_before(4) == timedelta(hours=4)


@pytest.mark.parametrize("given", [5, float("nan"), None, "polynomial", timedelta(seconds=-1), timedelta.max])
def test_a_computed_wait_must_be_a_duration(given: Any) -> None:
    (policy,) = of_step("ExceptionPolicy('reattempt', wait=lambda attempt: given)", given=given)

    with pytest.raises(ValueError, match="the wait before reattempt 2="):
        policy.wait_before(2)


@pytest.mark.parametrize(
    ("written", "matchers"),
    [
        ("TimeoutError", (TimeoutError,)),
        ("[TimeoutError, ValueError]", (TimeoutError, ValueError)),
        ("(TimeoutError,)", (TimeoutError,)),
        ("'a.module.that_is.not_there.Error'", ("a.module.that_is.not_there.Error",)),
        ("[matching, 'a.b']", (Ellipsis, "a.b")),
    ],
)
def test_matching_accepts_classes_names_and_matchers(written: str, matchers: tuple[Any, ...]) -> None:
    matching = Matching()
    (policy,) = of_step(f"ExceptionPolicy('skip', matching={written})", matching=matching)

    assert policy.matchers == tuple(matching if each is Ellipsis else each for each in matchers)


def test_a_list_keeps_its_order() -> None:
    policies = of_step("[ExceptionPolicy('skip', matching=ValueError), 'cancel', ExceptionPolicy('pause')]")

    assert [policy.action for policy in policies] == ["skip", "cancel", "pause"]


def test_all_steps_of_a_series_share_their_policies() -> None:
    cls = make(
        """
        class Made(Base):
            polls = step.series(lambda self: None, waits=[timedelta(0), timedelta(1)], on_exception="skip")
        """
    )

    assert [cls.steps[name].policies[0].action for name in ("polls_1", "polls_2")] == ["skip", "skip"]


@pytest.mark.parametrize("written", ["'back_off'", "lambda workflow, error: workflow.pause()"])
def test_a_policy_can_have_a_handler(written: str) -> None:
    (policy,) = in_class(
        f"""
        exception_policies = [ExceptionPolicy(matching=TimeoutError, handler={written}, max_reattempts=3)]
        def back_off(self, error): ...
        """
    )

    assert policy.action is None
    assert policy.handler == "back_off" or callable(policy.handler)
    assert policy.cap == 3


@pytest.mark.parametrize(
    ("decorator", "matchers"),
    [
        ("@on_exception", ()),
        ("@on_exception()", ()),
        ("@on_exception(TimeoutError)", (TimeoutError,)),
        (
            "@on_exception(TimeoutError, 'shop.errors.Busy', report='never')",
            (TimeoutError, "shop.errors.Busy"),
        ),
    ],
)
def test_a_method_can_be_a_handler(decorator: str, matchers: tuple[Any, ...]) -> None:
    cls = make(f"class Made(Base):\n    {decorator}\n    def back_off(self, error): return error")
    (policy,) = cls._geneva.policies

    assert policy.handler == policy.name == "back_off"
    assert policy.matchers == matchers
    assert policy.cap == 100
    assert cls.back_off(None, 5) == 5  # now a plain method


def test_a_matcher_object_is_not_mistaken_for_the_decorated_function() -> None:
    matching = Matching()
    (policy,) = in_class("@on_exception(matching)\ndef back_off(self, error): ...", matching=matching)

    assert policy.matchers == (matching,)


def names(cls: Any) -> list[str]:
    return [policy.name for policy in cls._geneva.policies]


def test_policies_are_in_the_order_of_declaration_with_base_classes_first() -> None:
    cls = make(
        """
        class Mixin:
            @on_exception(KeyError)
            def in_mixin(self, error): ...
        class Parent(Base):
            @on_exception(TimeoutError)
            def first(self, error): ...
            exception_policies = [ExceptionPolicy("skip"), ExceptionPolicy("cancel")]
            @on_exception(ValueError)
            def second(self, error): ...
        class Child(Mixin, Parent):
            exception_policies = [ExceptionPolicy("pause")]
            @on_exception(OSError)
            def third(self, error): ...
        """
    )

    assert names(cls) == ["first", "skip", "cancel", "second", "in_mixin", "pause", "third"]


def test_a_handler_that_is_declared_again_moves_to_its_new_place() -> None:
    cls = make(
        """
        class Parent(Base):
            @on_exception(TimeoutError)
            def again(self, error): ...
            @on_exception(ValueError)
            def other(self, error): ...
        class Child(Parent):
            @on_exception(OSError)
            def again(self, error): ...
        """
    )

    assert names(cls) == ["other", "again"]
    assert cls._geneva.policies[-1].matchers == (OSError,)


def test_a_plain_method_overrides_the_handler_and_keeps_its_options() -> None:
    cls = make(
        """
        class Parent(Base):
            @on_exception(TimeoutError)
            def back_off(self, error): return "parent"
        class Child(Parent):
            def back_off(self, error): return "child"
        """
    )

    assert names(cls) == ["back_off"]
    assert cls.back_off(None, None) == "child"


def test_an_empty_list_means_no_policy() -> None:
    assert in_class("exception_policies = []") == ()


# -- refused declarations


def refused(body: str, **names: Any) -> str:
    with pytest.raises(StepConfigurationError) as caught:
        in_class(body, **names)
    return str(caught.value)


STEP_MISTAKES = {
    "an unknown action": ("'retry'", "'retry'", "pause, cancel, skip, reattempt"),
    "an action with a mark": ("'pause!'", "'pause!' is not an action"),
    "a number": ("3", "on_exception=3 is not a policy"),
    "an exception class": ("ValueError", "is not a policy"),
    "an empty list": ("[]", "is empty", "Leave it out"),
    "a list with a number": ("['skip', 3]", "on_exception[1]=3"),
    "nothing to do": ("ExceptionPolicy(matching=ValueError)", "neither what to do nor who decides"),
    "an unknown action of a policy": ("ExceptionPolicy('stop')", "action='stop' is unknown", "reattempt"),
    "a wait without a reattempt": ("ExceptionPolicy('skip', wait=timedelta(1))", "wait is about reattempts"),
    "a limit without a reattempt": ("ExceptionPolicy('pause', max_reattempts=3)", "max_reattempts is about"),
    "no limit without a reattempt": (
        "ExceptionPolicy('pause', max_reattempts=None)",
        "max_reattempts is about",
    ),
    "a terminal action without a reattempt": (
        "ExceptionPolicy('cancel', terminal_action='skip')",
        "terminal_action is about",
    ),
    "an unknown terminal action": (
        "ExceptionPolicy('reattempt', terminal_action='reattempt')",
        "terminal_action='reattempt' is unknown",
        "pause, cancel, skip.",
    ),
    "an unknown report": ("ExceptionPolicy('skip', report='sometimes')", "'sometimes'", "terminal_only"),
    "a report that is a flag": ("ExceptionPolicy('skip', report=False)", "report=False is unknown", "never"),
    "a wait that is a number": ("ExceptionPolicy('reattempt', wait=5)", "wait=5 is not a duration"),
    "a wait that is not a number": ("ExceptionPolicy('reattempt', wait=float('nan'))", "wait=nan"),
    "a wait that is negative": ("ExceptionPolicy('reattempt', wait=timedelta(-1))", "is negative"),
    "a wait that is huge": ("ExceptionPolicy('reattempt', wait=timedelta.max)", "longer than"),
    "an unknown backoff": (
        "ExceptionPolicy('reattempt', wait='linear')",
        "'linear'",
        "polynomial, exponential",
    ),
    "a wait without an attempt": ("ExceptionPolicy('reattempt', wait=lambda: 1)", "called with (attempt)"),
    "a limit below zero": ("ExceptionPolicy('reattempt', max_reattempts=-1)", "max_reattempts=-1"),
    "a limit that is True": ("ExceptionPolicy('reattempt', max_reattempts=True)", "max_reattempts=True"),
    "a limit that is infinite": ("ExceptionPolicy('reattempt', max_reattempts=float('inf'))", "None for no"),
    "a limit that is a text": ("ExceptionPolicy('reattempt', max_reattempts='3')", "max_reattempts='3'"),
    "nothing to match": ("ExceptionPolicy('skip', matching=[])", "matching is empty"),
    "a name without a dot": ("ExceptionPolicy('skip', matching='TimeoutError')", "not a dotted name"),
    "a name that is none": ("ExceptionPolicy('skip', matching='shop.errors:Busy')", "not a dotted name"),
    "a class that is no exception": ("ExceptionPolicy('skip', matching=int)", "is not an exception class"),
    "a class that matches": ("ExceptionPolicy('skip', matching=Matching)", "an object (not a class)"),
    "what ends processes": ("ExceptionPolicy('skip', matching=SystemExit)", "counts as a crash", "on_crash"),
    "everything there is": ("ExceptionPolicy('skip', matching=BaseException)", "leave matching out"),
    "a function that would match": ("ExceptionPolicy('skip', matching=lambda error: True)", "matches(error)"),
    "an action and a handler": (
        "ExceptionPolicy('skip', handler='ship')",
        "action='skip'",
        "exclude each other",
    ),
    "a wait and a handler": (
        "ExceptionPolicy(wait=timedelta(1), handler=lambda workflow, error: None)",
        "exclude each other",
    ),
    "a handler that is not there": ("ExceptionPolicy(handler='gone')", "'gone' names no method"),
    "a handler that is a number": ("ExceptionPolicy(handler=5)", "handler=5 is neither"),
    "a handler that takes no error": ("ExceptionPolicy(handler=lambda workflow: None)", "(workflow, error)"),
    "a method that takes no error": ("ExceptionPolicy(handler='helper')", "(self, error)"),
}


@pytest.mark.parametrize("mistake", STEP_MISTAKES.values(), ids=STEP_MISTAKES.keys())
def test_a_mistake_in_a_step_is_refused_with_its_place_and_a_hint(mistake: tuple[str, ...]) -> None:
    written, *says = mistake

    message = refused(f"def helper(self): ...\n@step(on_exception={written})\ndef ship(self): ...")

    assert message.startswith("shop.workflows.Made, step 'ship': on_exception")
    assert message.endswith(f"({FILE}:3)")
    for part in says:
        assert part in message


CLASS_MISTAKES = {
    "no list": (
        "exception_policies = ExceptionPolicy('skip')",
        "attribute 'exception_policies'",
        "not a list",
    ),
    "a text": ("exception_policies = 'skip'", "'skip' is not a list"),
    "a number in the list": ("exception_policies = [5]", "[0]=5 is not a policy"),
    "a wrong policy": (
        "exception_policies = [\n    'skip',\n    ExceptionPolicy('skip', max_reattempts=3),\n]",
        "[1]: ExceptionPolicy('skip', max_reattempts=3): max_reattempts is about reattempts",
        f"({FILE}:4)",
    ),
    "a handler of the class for a step": (
        "@on_exception(ValueError)\ndef back_off(self, error): ...\n"
        "@step(on_exception=back_off)\ndef ship(self): ...",
        "step 'ship'",
        "holds for the whole class",
    ),
    "a decorator over nothing": ("back_off = on_exception(ValueError)", "decorates nothing", f"({FILE}:2)"),
    "a handler that takes no error": (
        "@on_exception(ValueError)\ndef back_off(self): ...",
        "on_exception 'back_off'",
        "(self, error)",
        f"({FILE}:2)",
    ),
    "a handler over a step": ("@on_exception\n@step\ndef ship(self): ...", "is declared as a step"),
    "a step over a handler": (
        "@step\n@on_exception(ValueError)\ndef ship(self, error): ...",
        "is declared as a step",
    ),
    "an unknown option of a handler": (
        "@on_exception(ValueError, wait=timedelta(1))\ndef back_off(self, error): ...",
        "is not an option of on_exception",
        "max_reattempts, terminal_action, report",
    ),
    "a handler for what ends processes": (
        "@on_exception(KeyboardInterrupt)\ndef back_off(self, error): ...",
        "counts as a crash",
    ),
    "a name that is ours": (
        "@on_exception(ValueError)\ndef save(self, error): ...",
        "would hide Workflow.save",
    ),
    "a name that is taken": (
        "@step\ndef ship(self): ...\n@on_exception(ValueError)\ndef ship(self, error): ...",
        "is taken twice",
    ),
    "another decorator above": (
        "@keep\n@on_exception(ValueError)\ndef back_off(self, error): ...",
        "another decorator stands above",
    ),
    "a handler that is a property": (
        "@on_exception(ValueError)\n@property\ndef back_off(self, error): ...",
        "it is a property",
    ),
}


def keep(function: Any) -> Any:
    def wrapper(*args: Any) -> Any:
        return function(*args)

    wrapper.__wrapped__ = function  # type: ignore[attr-defined]
    return wrapper


@pytest.mark.parametrize("mistake", CLASS_MISTAKES.values(), ids=CLASS_MISTAKES.keys())
def test_a_mistake_in_a_class_is_refused_with_its_place_and_a_hint(mistake: tuple[str, ...]) -> None:
    body, *says = mistake

    message = refused(body, keep=keep)

    assert message.startswith("shop.workflows.Made, ")
    for part in says:
        assert part in message


@pytest.mark.parametrize("other", ["@step\n    def ship(self): ...", "@cancel_if\n    def ship(self): ..."])
def test_a_subclass_cannot_give_an_inherited_name_another_meaning(other: str) -> None:
    with pytest.raises(StepConfigurationError, match="that of an inherited"):
        make(
            f"class Parent(Base):\n    {other}\nclass Made(Parent):\n    @on_exception(ValueError)\n"
            "    def ship(self, error): ..."
        )


def test_a_subclass_cannot_break_an_inherited_handler() -> None:
    with pytest.raises(StepConfigurationError, match=r"on_exception 'back_off'.*is not a function"):
        make(
            "class Parent(Base):\n    @on_exception(ValueError)\n    def back_off(self, error): ...\n"
            "class Made(Parent):\n    back_off = None"
        )
