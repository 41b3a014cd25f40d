"""Checks shared by everything in a class body: durations, functions, and where a mistake was made."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from asgiref.sync import iscoroutinefunction

from geneva_drive.exceptions import StepConfigurationError


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


T = TypeVar("T")
MISSING: Any = _Missing()
"""Stands for "not given" and "not defined" where None may be a value."""


@dataclass(frozen=True, slots=True)
class Location:
    """A line of source text."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def caller_location(depth: int) -> Location:
    """Return the line that is `depth` frames above this function's caller."""
    frame = sys._getframe(depth + 1)
    return Location(frame.f_code.co_filename, frame.f_lineno)


def location_of(function: Any) -> Location | None:
    """Return where a function begins, or None for a callable without code of its own."""
    code = getattr(function, "__code__", None)
    return None if code is None else Location(code.co_filename, code.co_firstlineno)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was declared, for error messages."""

    owner: str
    step: str | None = None
    location: Location | None = None
    kind: str = "step"

    def __str__(self) -> str:
        return self.owner if self.step is None else f"{self.owner}, {self.kind} {self.step!r}"

    def error(self, problem: str) -> StepConfigurationError:
        """Return the error to raise. `problem` says what is wrong and what to do about it."""
        where = "" if self.location is None else f" ({self.location})"
        return StepConfigurationError(f"{self}: {problem}{where}")

    def check(self, check: Callable[[Any, str], T], value: Any, name: str) -> T:
        """Return the checked value. A ValueError becomes the error of this place."""
        try:
            return check(value, name)
        except ValueError as error:
            raise self.error(str(error)) from None


@dataclass(eq=False, repr=False)
class Declared:
    """What a decorator of this package leaves in a class body until the class is made."""

    function: Any  # what was decorated, or MISSING
    location: Location  # where it was written

    kind: ClassVar[str] = "attribute"
    """What error messages call it."""

    @property
    def plain(self) -> Any:
        """What the class gets in its place, or MISSING for nothing."""
        return self.function

    def series_waits(self, place: Place) -> tuple[timedelta, ...] | None:  # noqa: ARG002
        """Return the waits of the steps that it stands for, or None if it is not a series."""
        return None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        # Other decorators check whether their argument is callable, and would take this object for an option.
        return self.function(*arguments, **named)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        # A plain mixin keeps this object in its body; its method stays callable.
        return self.function.__get__(instance, owner) if hasattr(self.function, "__get__") else self


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A workflow class before it is made: its body, and its ancestors in method resolution order."""

    name: str
    module: str
    qualname: str
    body: dict[str, Any]
    bases: tuple[type, ...]
    ancestors: tuple[type, ...]

    @property
    def path(self) -> str:
        return f"{self.module}.{self.qualname}"

    @property
    def place(self) -> Place:
        return Place(self.path)

    def find(self, name: str) -> Any:
        """Return the attribute as a class body has it, the own one or an ancestor's, or MISSING."""
        if name in self.body:
            return self.body[name]
        return next((vars(ancestor)[name] for ancestor in self.ancestors if name in vars(ancestor)), MISSING)


def linearize(bases: tuple[type, ...]) -> tuple[type, ...]:
    """Return the ancestors of a class with these bases, in method resolution order.

    Python computes this order while it makes the class. Django then registers the class for good, so all
    checks run before, and need the order earlier. Inconsistent bases are left to Python's own error message.
    """
    pending = [list(base.__mro__) for base in bases] + [list(bases)]
    order: list[type] = []
    while pending := [classes for classes in pending if classes]:
        heads = (classes[0] for classes in pending)
        chosen = next((head for head in heads if not any(head in rest[1:] for rest in pending)), None)
        if chosen is None:
            break
        order.append(chosen)
        for classes in pending:
            if classes[0] is chosen:
                del classes[0]
    return tuple(order)


LONGEST = timedelta(days=36525)
"""A century. Databases cannot store times after the year 9999, and a longer wait is a mistake anyway."""


def checked_duration(value: Any, name: str = "wait") -> timedelta:
    """Return `value` if it is a timedelta from zero to `LONGEST`.

    Raises
    ------
    ValueError
        It is not. Numbers are refused, since their unit would be a guess.
    """
    if isinstance(value, str):
        raise ValueError(
            f"{name}={value!r} is a name, and {name} takes a duration. To wait for a signal, "
            f"say wait_for={value!r}."
        )
    if not isinstance(value, timedelta):
        raise ValueError(
            f"{name}={value!r} is not a duration. Give a timedelta, such as timedelta(minutes=5)."
        )
    if value < timedelta(0):
        raise ValueError(f"{name}={value!r} is negative. Give a timedelta of zero or more.")
    if value > LONGEST:
        raise ValueError(f"{name}={value!r} is longer than {LONGEST.days} days. Give a shorter timedelta.")
    return value


def checked_choice(value: Any, name: str, choices: Iterable[str]) -> str:
    """Return the choice that `value` equals. Raises ValueError."""
    for choice in choices:
        if isinstance(value, str) and value == choice:
            return choice
    raise ValueError(f"{name}={value!r} is unknown. Give one of: {', '.join(choices)}.")


if sys.version_info >= (3, 14):
    from annotationlib import Format

    # Names that are imported under TYPE_CHECKING do not exist when the class is made.
    _UNEVALUATED: dict[str, Any] = {"annotation_format": Format.FORWARDREF}
else:
    _UNEVALUATED: dict[str, Any] = {}


def problem_with_function(function: Any, *arguments: str) -> str | None:
    """Return why `function` cannot be a method that is called with `arguments`, or None if it can.

    Parameters
    ----------
    arguments
        The names of the positional arguments, ``self`` first.
    """
    wanted = f"def …({', '.join(arguments)})"
    if isinstance(function, staticmethod | classmethod | property):
        return f"it is a {type(function).__name__}. Make it a plain method: {wanted}."
    if isinstance(function, type) or not callable(function) or not hasattr(type(function), "__get__"):
        return f"{function!r} is not a function. Give one: {wanted}."
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return f"{function!r} is a generator: calling it would run nothing. Take the yield out."
    return problem_with_signature(function, *arguments)


def problem_with_call(function: Any, kind: str, *arguments: str) -> str | None:
    """Return why a callable of a kind that cannot be async cannot be called with `arguments`, or None."""
    if iscoroutinefunction(function):
        return f"it is async, and {kind} are not. Make it a plain method or function."
    return problem_with_signature(function, *arguments)


def problem_with_signature(function: Any, *arguments: str) -> str | None:
    """Return why `function` cannot be called with these positional arguments, or None if it can.

    A callable whose signature cannot be read passes.
    """
    try:
        # Not through __wrapped__: a decorator may supply arguments itself.
        signature = inspect.signature(function, follow_wrapped=False, **_UNEVALUATED)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*arguments)
    except TypeError:
        called = ", ".join(arguments)
        return f"{function!r} takes {signature}, and is called with ({called}). Change what it takes."
    return None


def truth(answer: object, what: str) -> bool:
    """Return the answer of a condition or a matcher as a boolean. Raises TypeError for an awaitable."""
    if inspect.isawaitable(answer):
        # A coroutine is always true.
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(
            f"The {what} returned an awaitable. It must be a normal function that returns True or False."
        )
    return bool(answer)
