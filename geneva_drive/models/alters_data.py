"""Methods that Django's templates must not call: ``{{ workflow.cancel }}`` is a typo, not a decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["alters_data"]

_F = TypeVar("_F", bound=Callable[..., Any])


def alters_data(method: _F) -> _F:
    """Mark a method with the attribute that templates look at."""
    method.alters_data = True  # type: ignore[attr-defined]
    return method
