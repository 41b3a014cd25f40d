"""What an author says about exceptions: policies, and methods that handle them.

Like decorators of steps, these only note what was written. `policy_checks` judges it when the class is
made and turns it into a `Policy`; `precedence` finds the one that an exception meets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Literal, Protocol, TypeVar, overload

from geneva_drive.definition.backoff import backoff
from geneva_drive.definition.blueprint import MISSING, Location, caller_location
from geneva_drive.definition.durations import checked_duration

__all__ = [
    "DEFAULT_MAX_REATTEMPTS",
    "DeclaredHandler",
    "DeclaredPolicies",
    "ExceptionPolicy",
    "Matcher",
    "Policy",
    "PolicyAction",
    "Report",
    "backoff",
    "on_exception",
]

DEFAULT_MAX_REATTEMPTS: Final = 100
"""Wherever reattempts are asked for without a limit. None means no limit."""

LEAST_UNLIMITED_WAIT: Final = timedelta(seconds=1)
"""Between reattempts without a limit, whatever was asked for: a step that always fails must not spin."""

F = TypeVar("F", bound=Callable[..., Any])


class ErrorMatcher(Protocol):
    """An object that knows which exceptions are meant."""

    def matches(self, error: Exception, /) -> object: ...


Matcher = type[Exception] | str | ErrorMatcher
Action = Literal["pause", "cancel", "reattempt", "skip"]
TerminalAction = Literal["pause", "cancel", "skip"]
When = Literal["always", "never", "terminal_only"]
Wait = timedelta | str | Callable[[int], timedelta]
Handler = str | Callable[[Any, Exception], object]


class PolicyAction(StrEnum):
    """What a policy does with the workflow."""

    PAUSE = "pause"
    CANCEL = "cancel"
    SKIP = "skip"
    REATTEMPT = "reattempt"


class Report(StrEnum):
    """When an exception is logged as an error."""

    ALWAYS = "always"
    NEVER = "never"
    TERMINAL_ONLY = "terminal_only"


class ExceptionPolicy:
    """Say what becomes of a workflow when a step raises.

    ::

        ExceptionPolicy("reattempt", matching=TimeoutError, wait="polynomial", max_reattempts=5)
        ExceptionPolicy("skip", matching="shop.errors.NoReceiptWanted", report="never")
        ExceptionPolicy(matching=RateLimited, handler="back_off")

    Parameters
    ----------
    action
        ``"pause"``, ``"cancel"``, ``"skip"`` or ``"reattempt"``. Left out when there is a handler.
    matching
        An exception class, its dotted name (looked up when an exception has to be matched), an object with
        ``matches(error)``, or a list of these. Left out, the policy is a blanket one: it fits everything.
    wait
        Before a reattempt: a timedelta, ``"polynomial"`` or ``"exponential"``, or a callable that is given
        the number of the reattempt, from 1, and returns a timedelta. Default: none.
    max_reattempts
        How many reattempts there are in a row, at most. Default: 100. None: no limit, and then at least a
        second between two of them.
    terminal_action
        What is done when they are used up: ``"pause"`` (the default), ``"cancel"`` or ``"skip"``.
    report
        When the exception is logged as an error: ``"always"`` (the default), ``"never"``, or
        ``"terminal_only"``, that is unless the step is attempted again.
    handler
        In place of an action: a callable of the workflow and the error, or a method's name. It decides by
        flow control; when it calls none, the workflow pauses.

    Raises
    ------
    StepConfigurationError
        When the class that uses it is made, if something in it cannot work.
    """

    __slots__ = (
        "action",
        "handler",
        "location",
        "matching",
        "max_reattempts",
        "report",
        "terminal_action",
        "wait",
    )

    def __init__(
        self,
        action: Action | None = None,
        *,
        matching: Matcher | Iterable[Matcher] | None = None,
        wait: Wait | None = None,
        max_reattempts: int | None = MISSING,
        terminal_action: TerminalAction | None = None,
        report: When | None = None,
        handler: Handler | None = None,
    ) -> None:
        self.location: Location | None = caller_location(1)
        self.action = action
        self.matching = matching
        self.wait = wait
        self.max_reattempts = max_reattempts
        self.terminal_action = terminal_action
        self.report = report
        self.handler = handler

    def __repr__(self) -> str:
        names = ("matching", "wait", "terminal_action", "report", "handler")
        given = [repr(self.action)] if self.action is not None else []
        given += [f"{name}={getattr(self, name)!r}" for name in names if getattr(self, name) is not None]
        if self.max_reattempts is not MISSING:
            given.append(f"max_reattempts={self.max_reattempts!r}")
        return f"ExceptionPolicy({', '.join(given)})"


class DeclaredHandler:
    """What `on_exception` leaves in a class body until the class is made."""

    __slots__ = ("function", "location", "matching", "options")

    def __init__(
        self, function: Any, matching: tuple[Any, ...], options: dict[str, Any], location: Location
    ) -> None:
        self.function = function
        self.matching = matching
        self.options = options
        self.location = location

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.function is MISSING:
            # ``@on_exception(…)`` before it got its function. Left in a class body, it is a mistake.
            function = arguments[0] if arguments else MISSING
            code = getattr(function, "__code__", None)
            location = Location(code.co_filename, code.co_firstlineno) if code else self.location
            return DeclaredHandler(function, self.matching, self.options, location)
        return self.function(*arguments, **named)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        # Only a plain mixin still has this object in its body; its method stays callable.
        return self.function.__get__(instance, owner) if hasattr(self.function, "__get__") else self


class DeclaredPolicies:
    """What a class body gives as ``exception_policies``."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


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
    """Let a method decide what follows an exception, in any step of the class.

    ::

        @on_exception(RateLimited)
        def back_off(self, error):
            self.reattempt(wait=error.retry_after)

    The method runs outside of locks and transactions. It must call ``pause()``, ``cancel()``, ``skip()``,
    ``finish()`` or ``reattempt()``; when it calls none, or raises, the workflow pauses. Reattempts that it
    asks for count like those of a policy.

    Parameters
    ----------
    matching
        As for `ExceptionPolicy`. None at all: every exception.
    max_reattempts, terminal_action, report
        As for `ExceptionPolicy`.
    """
    location = caller_location(1)
    if len(matching) == 1 and not options and _is_decorated(matching[0]):
        return DeclaredHandler(MISSING, (), {}, location)(matching[0])
    return DeclaredHandler(MISSING, matching, options, location)


def _is_decorated(value: Any) -> bool:
    """Whether ``@on_exception`` stands above this, without parentheses."""
    return hasattr(value, "__get__") and not isinstance(value, type) and not hasattr(value, "matches")


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, checked.

    Attributes
    ----------
    action
        None when a handler decides.
    matchers
        Exception classes, dotted names, objects with ``matches(error)``. Empty: everything.
    cap
        The greatest number of reattempts in a row. None: no limit.
    handler
        A method's name or a callable of the workflow and the error.
    name
        What to call it in a record.
    """

    action: PolicyAction | None = None
    matchers: tuple[Any, ...] = ()
    wait: Wait = timedelta(0)
    cap: int | None = DEFAULT_MAX_REATTEMPTS
    terminal_action: PolicyAction = PolicyAction.PAUSE
    report: Report = Report.ALWAYS
    handler: Any = None
    name: str = ""

    @property
    def is_blanket(self) -> bool:
        return not self.matchers

    @property
    def may_reattempt(self) -> bool:
        """Whether its limit means anything: only then does it take part in the limit of a list."""
        return self.action is PolicyAction.REATTEMPT or self.handler is not None

    def wait_before(self, attempt: int) -> timedelta:
        """Return the wait before reattempt number ``attempt``, from 1.

        Raises
        ------
        Exception
            What a callable raises, or ValueError when it returns something else than a duration.
        """
        if isinstance(self.wait, timedelta):
            return self.wait
        if isinstance(self.wait, str):
            return backoff(self.wait, attempt)
        return checked_duration(self.wait(attempt), f"the wait before reattempt {attempt}")
