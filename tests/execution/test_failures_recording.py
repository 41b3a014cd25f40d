"""Every exception is recorded within the size limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from geneva_drive import step
from geneva_drive.conf import settings as geneva
from geneva_drive.testing import assert_state, assert_step, run_next_step
from tests.execution.scripted import Busy, FailsShort, Scripted, play, rows

pytestmark = pytest.mark.django_db


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class TwoArguments(Exception):
    def __init__(self, first: Any, second: Any) -> None:
        super().__init__()
        self.both = first, second


def deep() -> Exception:
    try:
        _recurse()
    except RecursionError as error:
        return error
    raise AssertionError


def _recurse() -> None:
    _recurse()


def chained(length: int) -> Exception:
    error = Busy("the innermost")
    for number in range(length):
        outer = Busy(f"number {number}")
        outer.__cause__ = error
        error = outer
    return error


class FailsBare(Scripted):
    @step
    def work(self) -> None:
        self.script(self)


HOSTILE: dict[str, Callable[[], Exception]] = {
    "letters beyond three bytes": lambda: Busy("🧨 𝒳 \U0010ffff"),
    "a long text": lambda: Busy("x" * 200_000),
    "NUL and a lone surrogate": lambda: Busy("a\0b\ud800c"),
    "a deep recursion": deep,
    "a text that raises": Unprintable,
    "a text that ends processes": Unspeakable,
    "two arguments": lambda: TwoArguments(1, 2),
    "a chain": lambda: chained(300),
    "a group": lambda: ExceptionGroup("many", [Busy(str(number)) for number in range(500)]),
    "a long name": lambda: type("L" * 400, (Exception,), {})("named"),
    "no arguments": Exception,
}


@pytest.mark.parametrize("handled", [False, True], ids=["without a policy", "handled"])
@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
def test_every_error_is_recorded_and_pauses_the_workflow(
    make: Callable[[], Exception], handled: bool
) -> None:
    error = make()
    cls = FailsShort if handled else FailsBare
    workflow = play(cls, error)
    if handled:
        run_next_step(workflow)
        execution = assert_step(workflow, "work", "scheduled")
        execution = rows(workflow)[0]
        assert execution.outcome == "reattempted"
    else:
        with pytest.raises(type(error)):
            run_next_step(workflow)
        assert_state(workflow, "paused")
        execution = assert_step(workflow, "work", "failed", "failed")

    assert execution.error_class
    assert len(execution.error_class) <= 255
    assert execution.error_class.startswith(type(error).__module__)
    for text in (execution.error_message, execution.error_traceback):
        assert text is not None
        assert len(text) <= geneva.MAX_ERROR_CHARACTERS
        assert "\0" not in text
