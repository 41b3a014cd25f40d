"""The options of steps: the signatures, the table of checks and the documented parameters name the same ones."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_overloads

import pytest

from geneva_drive import resumable_step, step
from geneva_drive.definition.collection import StepDefinition
from geneva_drive.definition.options import STEP_OPTIONS, options_of

DECORATORS = pytest.mark.parametrize("decorator", [step, resumable_step], ids=["step", "resumable_step"])


def _keywords(function: Any) -> dict[str, Any]:
    """The keyword-only parameters of a signature, with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}


@DECORATORS
def test_both_overloads_have_every_option_in_the_order_of_the_table(decorator: Any) -> None:
    of_function, of_options = get_overloads(type(decorator).__call__)

    expected = dict.fromkeys(options_of(decorator.resumable))
    for written in (of_function, of_options, decorator):
        assert list(_keywords(written).items()) == list(expected.items())


@DECORATORS
def test_a_series_has_the_options_that_can_apply_to_each_step(decorator: Any) -> None:
    (waits, waits_default), *shared = _keywords(decorator.series).items()

    assert (waits, waits_default) == ("waits", inspect.Parameter.empty)
    assert shared == [
        (name, None) for name, option in options_of(decorator.resumable).items() if option.of_series
    ]


@DECORATORS
def test_the_signature_of_a_decorator_begins_with_the_function(decorator: Any) -> None:
    function = next(iter(inspect.signature(decorator).parameters.values()))

    assert (function.name, function.kind) == ("function", function.POSITIONAL_ONLY)


@DECORATORS
def test_every_option_is_documented(decorator: Any) -> None:
    documented = (inspect.getdoc(type(decorator)) or "").partition("Parameters\n----------\n")[2]

    names = re.findall(r"^(\w+)\n    \S", documented.partition("\n\nRaises\n")[0], re.MULTILINE)
    assert names == list(options_of(decorator.resumable))


def test_every_option_has_a_decorator_and_a_field_of_the_definition() -> None:
    kept = {"run_if": "skip_if", "on_exception": "policies", "before": "name", "after": "name"}

    for name, option in STEP_OPTIONS.items():
        assert option.of_steps or option.of_resumable_steps
        assert kept.get(name, name) in StepDefinition.__slots__
