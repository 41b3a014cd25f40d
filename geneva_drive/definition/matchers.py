"""Matchers: which signals a step waits for, and which names and keys a signal may have.

Matchers run while the workflow's row is locked, and must only read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

from geneva_drive.definition.validation import problem_with_call, truth
from geneva_drive.exceptions import InvalidSignalError, StepConfigurationError

LONGEST_SIGNAL_NAME: Final = 150
LONGEST_IDEMPOTENCY_KEY: Final = 255
"""Characters: the widths of the columns."""


class Matcher(Protocol):
    """An object that selects the signals that a step waits for."""

    def matches(self, signal: Any, /) -> object:
        """Return whether the step waits for ``signal``, by its ``name``, ``payload`` and ``workflow``."""


@dataclass(frozen=True)
class SignalMatcher:
    """Match signals of one name, with a ``condition`` only those for which it holds.

    ::

        @step(wait_for=SignalMatcher("payment", lambda workflow, payload: payload["amount"] >= workflow.hero.total))
        def ship(self): ...

    Parameters
    ----------
    name
        The signal's name, case-sensitive.
    condition
        A callable of the workflow and the payload. It is called while the workflow's row is locked, and must
        only read. Its exceptions are raised in ``signal()``.

    Raises
    ------
    StepConfigurationError
        The name or the condition is not valid.
    """

    name: str
    condition: Callable[[Any, Any], object] | None = None

    def __post_init__(self) -> None:
        try:
            checked_signal_name(self.name)
        except InvalidSignalError as error:
            raise StepConfigurationError(f"SignalMatcher: {error}") from None
        if self.condition is None:
            return
        if isinstance(self.condition, type) or not callable(self.condition):
            problem: str | None = "it is not callable. Give a callable of the workflow and the payload."
        else:
            problem = problem_with_call(self.condition, "conditions", "workflow", "payload")
        if problem is not None:
            raise StepConfigurationError(
                f"SignalMatcher({self.name!r}): condition={self.condition!r}: {problem}"
            )

    def matches(self, signal: Any) -> bool:
        """Return whether the name is this one and the condition holds."""
        if signal.name != self.name:
            return False
        if self.condition is None:
            return True
        return truth(self.condition(signal.workflow, signal.payload), f"matcher {self!r}")

    def __str__(self) -> str:
        return self.name


def signal_matches(matcher: Matcher, signal: Any) -> bool:
    """Return whether a matcher matches. Raises what the matcher raises."""
    return truth(matcher.matches(signal), f"matcher {matcher!r}")


def name_to_look_for(matcher: Matcher) -> str | None:
    """Return the only name that the matcher accepts, so that other signals need not be read, or None."""
    if isinstance(matcher, SignalMatcher) and type(matcher).matches is SignalMatcher.matches:
        return matcher.name
    return None


def describe(matcher: Matcher) -> str:
    """Return a short text: the matcher's ``__str__`` if it has its own, else its ``name`` or its class."""
    if type(matcher).__str__ is not object.__str__:
        return str(matcher)
    name = getattr(matcher, "name", None)
    return name if isinstance(name, str) else type(matcher).__name__


def checked_signal_name(value: Any, what: str = "name") -> str:
    """Return `value` if it can be a signal's name. Raises InvalidSignalError."""
    if not isinstance(value, str):
        raise InvalidSignalError(f"the {what} {value!r} must be a string, such as 'payment_received'.")
    if not value.strip():
        raise InvalidSignalError(f"the {what} {value!r} is empty. Give one, such as 'payment_received'.")
    if len(value) > LONGEST_SIGNAL_NAME:
        raise InvalidSignalError(
            f"the {what} has {len(value)} characters, at most {LONGEST_SIGNAL_NAME} fit."
        )
    return check_storable(value, what)


def check_storable(value: str, what: str) -> str:
    """Return `value` if every database can store it. Raises InvalidSignalError."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidSignalError(
            f"the {what} {value!r} contains a lone surrogate, which cannot be stored. Remove it."
        ) from None
    if "\0" in value:
        raise InvalidSignalError(f"the {what} {value!r} contains a NUL, which cannot be stored. Remove it.")
    return str.__str__(value)  # A member of an enumeration is stored by its value, not by its name.


def checked_matcher(value: Any, option: str = "wait_for") -> Matcher:
    """Return the matcher for a signal's name or an object with ``matches(signal)``. Raises ValueError."""
    if isinstance(value, str):
        try:
            return SignalMatcher(checked_signal_name(value))
        except InvalidSignalError as error:
            raise ValueError(f"{option}: {error}") from None
    if isinstance(value, timedelta) or (isinstance(value, int | float) and not isinstance(value, bool)):
        raise ValueError(
            f"{option}={value!r} is a duration, and {option} takes a signal's name. To be due later, say wait=…; to "
            "limit how long a signal is waited for, say timeout=…."
        )
    if isinstance(value, list | tuple | set | frozenset):
        raise ValueError(
            f"{option}={value!r} is a collection. To wait for one of several signals, give an object with "
            "matches(signal)."
        )
    matches = getattr(value, "matches", None)
    if isinstance(value, type) or not callable(matches):
        raise ValueError(
            f"{option}={value!r} is not a matcher. Give a signal's name, a SignalMatcher, or any object with "
            "matches(signal)."
        )
    if problem := problem_with_call(matches, "matchers", "signal"):
        raise ValueError(f"{option}={value!r}: matches(): {problem}")
    matcher: Matcher = value
    return matcher
