"""What the decorators of steps leave in a class body, as it was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geneva_drive.definition.blueprint import MISSING, Location

__all__ = ["DeclaredStep", "PendingStep", "location_of"]


class DeclaredStep:
    """What stands in a class body until the metaclass has read it.

    Attributes
    ----------
    function
        The step's code; MISSING for a gravestone, and for a decorator that decorates nothing.
    waits
        For a series, what was given as waits; else MISSING.
    arguments
        Positional arguments that should not be there.
    """

    __slots__ = ("arguments", "function", "location", "options", "removed", "resumable", "waits")

    def __init__(
        self,
        function: Any,
        options: Mapping[str, Any],
        location: Location,
        *,
        arguments: tuple[Any, ...] = (),
        waits: Any = MISSING,
        removed: bool = False,
        resumable: bool = False,
    ) -> None:
        self.function = function
        self.options = dict(options)
        self.location = location
        self.arguments = arguments
        self.waits = waits
        self.removed = removed
        self.resumable = resumable

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        # Decorators ask whether what they are given is callable, and this one must not look like an option.
        return self.function(*arguments, **named)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        # Only a plain mixin still has this object in its body; its method stays callable.
        return self.function.__get__(instance, owner) if hasattr(self.function, "__get__") else self


class PendingStep(DeclaredStep):
    """``@step(…)`` before it got its function. Left in a class body, it is a mistake."""

    __slots__ = ()

    def __call__(self, function: Any = MISSING, *arguments: Any, **named: Any) -> DeclaredStep:
        location = location_of(function) or self.location
        return DeclaredStep(
            function,
            {**self.options, **named},
            location,
            arguments=(*self.arguments, *arguments),
            resumable=self.resumable,
        )


def location_of(function: Any) -> Location | None:
    """Return where a function begins, or None for what has no code of its own."""
    code = getattr(function, "__code__", None)
    return None if code is None else Location(code.co_filename, code.co_firstlineno)
