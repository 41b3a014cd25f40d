"""Which policy applies to an exception."""

from __future__ import annotations

from typing import Any

import pytest

from geneva_drive.definition.decisions import find_policy
from geneva_drive.definition.policies import Policy, PolicyAction
from geneva_drive.exceptions import StepConfigurationError


class Busy(Exception):
    pass


class VeryBusy(Busy):
    pass


class Says:
    """Matches errors whose text contains a word."""

    def __init__(self, word: str) -> None:
        self.word = word

    def matches(self, error: Exception) -> bool:
        return self.word in str(error)


class Broken:
    def matches(self, error: Exception) -> bool:
        raise LookupError("the matcher's own mistake")


def policy(name: str, *matchers: Any, cap: int | None = 100, action: str = "reattempt") -> Policy:
    return Policy(action=PolicyAction(action), matchers=matchers, cap=cap, name=name)


HERE = f"{__name__}.Busy"

SPECIFIC = policy("specific", Busy)
BLANKET = policy("blanket")

ORDER = {
    "nothing was said": ([], [], None),
    "the step's single policy": ([SPECIFIC], [], "specific"),
    "the step's single blanket policy": ([BLANKET], [policy("class", Busy)], "blanket"),
    "one for another error falls through": ([policy("other", KeyError)], [policy("class", Busy)], "class"),
    "one for another error, and no other": ([policy("other", KeyError)], [], None),
    "of two specific ones the first": ([policy("first", Busy), policy("second", Busy)], [], "first"),
    "a specific one before a blanket one": ([BLANKET, SPECIFIC], [], "specific"),
    "of two blanket ones the first": ([policy("first"), policy("second")], [], "first"),
    "the step's blanket before the class's specific": ([BLANKET], [SPECIFIC], "blanket"),
    "the class's latest specific one": ([], [policy("early", Busy), policy("late", Busy)], "late"),
    "the class's specific before its later blanket": ([], [SPECIFIC, BLANKET], "specific"),
    "the class's latest blanket": ([], [policy("early"), policy("late")], "late"),
    "a base class's specific before the subclass's blanket": (
        [],
        [policy("base", Busy), policy("sub")],
        "base",
    ),
    "declared order, not the nearest class of error": (
        [policy("wide", Exception), policy("narrow", VeryBusy)],
        [],
        "wide",
    ),
    "a dotted name": ([policy("named", HERE)], [], "named"),
    "one of several": ([policy("several", KeyError, "builtins.OSError", Says("busy"))], [], "several"),
    "an object that matches": ([policy("says", Says("very"))], [], "says"),
    "an object that does not": ([policy("says", Says("nothing of it"))], [], None),
    "a broken matcher that nobody asks": ([SPECIFIC, policy("broken", Broken())], [], "specific"),
}


@pytest.mark.parametrize("case", ORDER.values(), ids=ORDER.keys())
def test_policies_are_tried_in_order_of_precedence(case: Any) -> None:
    of_step, of_class, expected = case

    found = find_policy(VeryBusy("very busy"), of_step, of_class)

    assert (None if found is None else found.policy.name) == expected


@pytest.mark.parametrize(
    ("of_step", "of_class", "cap"),
    [
        ([policy("a", Busy, cap=7)], [], 7),
        ([policy("a", Busy, cap=None)], [], None),
        ([policy("a", Busy, cap=7), policy("b", KeyError, cap=3)], [], 3),
        ([policy("a", Busy, cap=None), policy("b", KeyError, cap=3)], [], 3),
        ([policy("a", Busy, cap=7), policy("b", KeyError, cap=3, action="skip")], [], 7),
        ([], [policy("a", Busy, cap=7), policy("b", KeyError, cap=3)], 7),
        ([policy("b", KeyError, cap=3)], [policy("a", Busy, cap=7)], 7),
    ],
)
def test_the_smallest_limit_of_a_steps_list_applies_to_the_whole_list(
    of_step: list[Policy], of_class: list[Policy], cap: int | None
) -> None:
    found = find_policy(Busy(), of_step, of_class)

    assert found is not None
    assert found.policy.name == "a"
    assert found.cap == cap


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([Busy(), VeryBusy()], "specific"),
        ([Busy(), KeyError()], None),
        ([ExceptionGroup("", [Busy()])], "specific"),
    ],
)
def test_a_group_matches_if_all_its_errors_match(errors: list[Exception], expected: str | None) -> None:
    found = find_policy(ExceptionGroup("tasks", errors), [SPECIFIC], [])

    assert (None if found is None else found.policy.name) == expected


def test_an_error_in_a_matcher_is_propagated() -> None:
    with pytest.raises(LookupError, match="own mistake"):
        find_policy(Busy(), [policy("broken", Broken())], [BLANKET])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("not.a_module.Error", "'not.a_module.Error' cannot be imported"),
        (f"{__name__}.Missing", "cannot be imported"),
        (f"{__name__}.policy", "which is not an exception class"),
        ("builtins.SystemExit", "which is not an exception class"),
    ],
)
def test_a_dotted_name_of_no_exception_is_an_error(name: str, says: str) -> None:
    with pytest.raises(StepConfigurationError, match=says):
        find_policy(Busy(), [policy("named", name)], [])
