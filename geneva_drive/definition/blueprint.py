"""A workflow class that is about to be made, and how mistakes in it are told."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from geneva_drive.exceptions import StepConfigurationError

__all__ = ["MISSING", "Blueprint", "Location", "Place", "caller_location", "linearize"]


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
