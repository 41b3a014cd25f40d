"""A workflow class that is about to be made, and how mistakes in it are told."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from geneva_drive.exceptions import StepConfigurationError


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Any = _Missing()
"""What a look-up gives for a name that nobody defines (None may be a value)."""


@dataclass(frozen=True, slots=True)
class Location:
    """A line of source text."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def caller_location(depth: int) -> Location:
    """Return where the caller is that is `depth` frames above this function's caller."""
    frame = sys._getframe(depth + 1)
    return Location(frame.f_code.co_filename, frame.f_lineno)


def location_of(function: Any) -> Location | None:
    """Return where a function begins, or None for what has no code of its own."""
    code = getattr(function, "__code__", None)
    return None if code is None else Location(code.co_filename, code.co_firstlineno)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was declared, so that every complaint about it can say so."""

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


class Declared:
    """What a decorator of ours leaves in a class body until the class is made.

    Attributes
    ----------
    function
        What was decorated; MISSING where there is nothing.
    location
        Where it was written.
    """

    __slots__ = ("function", "location")

    kind = "attribute"
    """What to call it in an error message."""

    def __init__(self, function: Any, location: Location) -> None:
        self.function = function
        self.location = location

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        # Decorators ask whether what they are given is callable, and this one must not look like an option.
        return self.function(*arguments, **named)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        # Only a plain mixin still has this object in its body; its method stays callable.
        return self.function.__get__(instance, owner) if hasattr(self.function, "__get__") else self


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A class body, and the classes that the class will inherit from, in method resolution order."""

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
        """Return what the attribute will be, as it stands in a class body, or MISSING."""
        if name in self.body:
            return self.body[name]
        return next((vars(ancestor)[name] for ancestor in self.ancestors if name in vars(ancestor)), MISSING)


def linearize(bases: tuple[type, ...]) -> tuple[type, ...]:
    """Return the classes that a class with these bases inherits from, in method resolution order.

    Python computes this order only while it makes the class. A class in Django's registry of models
    cannot be unmade, so everything is checked before, and the order is computed here by the same rule.
    Bases that have no such order are left to Python, which refuses them with its own message.
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
"""A century. What is due later than the year 9999 cannot be stored, and is a slip of the pen anyway."""


def checked_duration(value: Any, name: str = "wait") -> timedelta:
    """Return `value` if it is a timedelta from zero to `LONGEST`.

    Raises
    ------
    ValueError
        It is not. Numbers are refused, for their unit would be a guess.
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


if sys.version_info >= (3, 14):
    from annotationlib import Format

    # Names under TYPE_CHECKING do not exist when the class is made.
    _UNEVALUATED: dict[str, Any] = {"annotation_format": Format.FORWARDREF}
else:
    _UNEVALUATED: dict[str, Any] = {}


def problem_with_function(function: Any, *arguments: str) -> str | None:
    """Say why `function` cannot be a method that is called with `arguments` (names, ``self`` first).

    Returns None when it can. A callable whose signature cannot be read is given the benefit of the doubt.
    """
    wanted = f"def …({', '.join(arguments)})"
    if isinstance(function, staticmethod | classmethod | property):
        return f"it is a {type(function).__name__}. Make it a plain method: {wanted}."
    if isinstance(function, type) or not callable(function) or not hasattr(type(function), "__get__"):
        return f"{function!r} is not a function. Give one: {wanted}."
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return f"{function!r} is a generator: calling it would run nothing. Take the yield out of it."
    return problem_with_signature(function, *arguments)


def problem_with_signature(function: Any, *arguments: str) -> str | None:
    """Say why `function` cannot be called with that many positional arguments, or return None."""
    try:
        # Not through __wrapped__: a decorator may well supply arguments of what it wraps.
        signature = inspect.signature(function, follow_wrapped=False, **_UNEVALUATED)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*arguments)
    except TypeError:
        called = ", ".join(arguments)
        return f"{function!r} takes {signature}, and is called with ({called}). Change what it takes."
    return None
