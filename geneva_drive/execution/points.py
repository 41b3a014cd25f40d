"""Points between two phases, at which the testing kit lets a process die."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["at_point", "reach"]

at_point: Callable[[str], None] | None = None
"""Called with the name of each point: prepared, performed, finalizing (nothing is committed yet), finalized."""


def reach(name: str) -> None:
    """Tell that a point has been reached."""
    if at_point is not None:
        at_point(name)
