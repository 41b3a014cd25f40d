"""Which functions can be called with a workflow."""

from __future__ import annotations

import inspect
import sys
from typing import Any

if sys.version_info >= (3, 14):
    from annotationlib import Format

    # Names under TYPE_CHECKING do not exist when the class is made.
    _UNEVALUATED: dict[str, Any] = {"annotation_format": Format.FORWARDREF}
else:
    _UNEVALUATED: dict[str, Any] = {}

__all__ = ["problem_with_function", "problem_with_signature"]


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
