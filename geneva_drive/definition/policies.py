"""Exception policies: what follows when a step raises, and the backoff before a reattempt."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Literal, Protocol, TypeVar, overload

from geneva_drive.definition.validation import (
    MISSING,
    Declared,
    caller_location,
    checked_duration,
    location_of,
)

LONGEST_BACKOFF: Final = timedelta(days=1)
"""The cap of every named backoff."""

_JITTER: Final = 0.15
"""Up to this share is taken off at random, so that what failed together does not come back together."""

_STEEPEST: Final = 64
"""By this attempt every curve is far beyond the cap; no greater power is computed."""

BACKOFFS: Final[dict[str, Callable[[int], int]]] = {
    # Seconds: 3, 18, 83, 258, 627 …, half an hour at the sixth and the cap at the eighteenth.
    "polynomial": lambda attempt: attempt**4 + 2,
    # Seconds: 2, 4, 8, 16, 32 …, half an hour at the eleventh and the cap at the seventeenth.
    "exponential": lambda attempt: 2**attempt,
}


def backoff(name: str, attempt: int) -> timedelta:
    """Return how long to wait before a reattempt.

    Parameters
    ----------
    name
        ``"polynomial"`` or ``"exponential"``.
    attempt
        The number of the reattempt, from 1.

    Returns
    -------
    timedelta
        At most `LONGEST_BACKOFF`, with up to 15 % taken off at random.

    Raises
    ------
    ValueError
        There is no such backoff, or the attempt is not a whole number from 1.
    """
    if name not in BACKOFFS:
        raise ValueError(f"{name!r} is not a backoff. There are: {', '.join(BACKOFFS)}.")
    if type(attempt) is not int or attempt < 1:
        raise ValueError(f"attempt={attempt!r} is not a whole number from 1.")
    # Capped first, so that there is jitter at the cap too.
    seconds = min(BACKOFFS[name](min(attempt, _STEEPEST)), LONGEST_BACKOFF.total_seconds())
    return timedelta(seconds=seconds * (1 - random.uniform(0, _JITTER)))


DEFAULT_MAX_REATTEMPTS: Final = 100
"""The limit where none is given. (None means no limit.)"""

LEAST_UNLIMITED_WAIT: Final = timedelta(seconds=1)
"""The least wait between reattempts without a limit: a step that always fails must not spin."""

F = TypeVar("F", bound=Callable[..., Any])


class ErrorMatcher(Protocol):
    """An object that selects exceptions."""

    def matches(self, error: Exception, /) -> object: ...


Matcher = type[Exception] | str | ErrorMatcher
Action = Literal["pause", "cancel", "reattempt", "skip"]
TerminalAction = Literal["pause", "cancel", "skip"]
When = Literal["always", "never", "terminal_only"]
Wait = timedelta | str | Callable[[int], timedelta]
Handler = str | Callable[[Any, Exception], object]


class PolicyAction(StrEnum):
    """What a policy does to the workflow."""

    PAUSE = "pause"
    CANCEL = "cancel"
    SKIP = "skip"
    REATTEMPT = "reattempt"


class Report(StrEnum):
    """When an exception is logged as an error."""

    ALWAYS = "always"
    NEVER = "never"
    TERMINAL_ONLY = "terminal_only"


@dataclass(eq=False, repr=False)
class ExceptionPolicy:
    """Say what happens to a workflow when a step raises.

    ::

        ExceptionPolicy("reattempt", matching=TimeoutError, wait="polynomial", max_reattempts=5)
        ExceptionPolicy("skip", matching="shop.errors.NoReceiptWanted", report="never")
        ExceptionPolicy(matching=RateLimited, handler="back_off")

    Parameters
    ----------
    action
        ``"pause"``, ``"cancel"``, ``"skip"`` or ``"reattempt"``. Left out when there is a handler.
    matching
        An exception class, its dotted name (imported when an exception is matched), an object with
        ``matches(error)``, or a list of these. Left out, the policy is a blanket one: it matches everything.
    wait
        Before a reattempt: a timedelta, ``"polynomial"`` or ``"exponential"``, or a callable that takes the
        number of the reattempt, from 1, and returns a timedelta. Default: no wait.
    max_reattempts
        The most reattempts in a row. Default: 100. None: no limit, with at least a second between two of them.
    terminal_action
        What happens after the last one: ``"pause"`` (the default), ``"cancel"`` or ``"skip"``.
    report
        When the exception is logged as an error: ``"always"`` (the default), ``"never"``, or
        ``"terminal_only"``: unless the step is attempted again.
    handler
        In place of an action: a callable of the workflow and the error, or a method's name. It decides by
        flow control; if it calls none, the workflow pauses.

    Raises
    ------
    StepConfigurationError
        When the class that uses it is made, if the policy cannot work.
    """

    action: Action | None = None
    _: KW_ONLY
    matching: Matcher | Iterable[Matcher] | None = None
    wait: Wait | None = None
    max_reattempts: int | None = MISSING
    terminal_action: TerminalAction | None = None
    report: When | None = None
    handler: Handler | None = None

    def __post_init__(self) -> None:
        self.location = caller_location(2)

    def __repr__(self) -> str:
        names = ("matching", "wait", "terminal_action", "report", "handler")
        given = [repr(self.action)] if self.action is not None else []
        given += [f"{name}={getattr(self, name)!r}" for name in names if getattr(self, name) is not None]
        if self.max_reattempts is not MISSING:
            given.append(f"max_reattempts={self.max_reattempts!r}")
        return f"ExceptionPolicy({', '.join(given)})"


@dataclass(eq=False, repr=False)
class DeclaredHandler(Declared):
    """What `on_exception` leaves in a class body."""

    matching: tuple[Any, ...]
    options: dict[str, Any]

    kind = "on_exception"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.function is MISSING:
            # ``@on_exception(…)`` before it got its function. Left in a class body, it is a mistake.
            function = arguments[0] if arguments else MISSING
            return DeclaredHandler(
                function, location_of(function) or self.location, self.matching, self.options
            )
        return super().__call__(*arguments, **named)


@overload
def on_exception(function: F, /) -> F: ...
@overload
def on_exception(
    *matching: Matcher,
    max_reattempts: int | None = ...,
    terminal_action: TerminalAction | None = ...,
    report: When | None = ...,
) -> Callable[[F], F]: ...
def on_exception(*matching: Any, **options: Any) -> Any:
    """Let a method decide what happens after an exception, in any step of the class.

    ::

        @on_exception(RateLimited)
        def back_off(self, error):
            self.reattempt(wait=error.retry_after)

    The method runs outside of locks and transactions. It must call ``pause()``, ``cancel()``, ``skip()``,
    ``finish()`` or ``reattempt()``; if it calls none, or raises, the workflow pauses. Its reattempts count
    like those of a policy.

    Parameters
    ----------
    matching
        As for `ExceptionPolicy`. Without any: every exception.
    max_reattempts, terminal_action, report
        As for `ExceptionPolicy`.
    """
    location = caller_location(1)
    if len(matching) == 1 and not options:
        value = matching[0]
        if hasattr(value, "__get__") and not isinstance(value, type) and not hasattr(value, "matches"):
            # ``@on_exception`` without parentheses.
            return DeclaredHandler(value, location_of(value) or location, (), {})
    return DeclaredHandler(MISSING, location, matching, options)


@dataclass(frozen=True, slots=True)
class Policy:
    """A checked policy."""

    action: PolicyAction | None = None  # none if a handler decides
    # Exception classes, dotted names, objects with ``matches(error)``. Empty: everything.
    matchers: tuple[Any, ...] = ()
    wait: Wait = timedelta(0)
    # The most reattempts in a row. None: no limit.
    cap: int | None = DEFAULT_MAX_REATTEMPTS
    terminal_action: PolicyAction = PolicyAction.PAUSE
    report: Report = Report.ALWAYS
    handler: Any = None  # a method's name or a callable of the workflow and the error
    name: str = ""  # the action or the handler's name, for records

    @property
    def is_blanket(self) -> bool:
        return not self.matchers

    @property
    def may_reattempt(self) -> bool:
        """Whether its cap has a meaning, and counts for the cap of a list."""
        return self.action is PolicyAction.REATTEMPT or self.handler is not None

    def wait_before(self, attempt: int) -> timedelta:
        """Return the wait before reattempt number ``attempt``, from 1.

        Raises
        ------
        Exception
            What a callable raises, or ValueError if it does not return a duration.
        """
        if isinstance(self.wait, timedelta):
            return self.wait
        if isinstance(self.wait, str):
            return backoff(self.wait, attempt)
        return checked_duration(self.wait(attempt), f"the wait before reattempt {attempt}")
