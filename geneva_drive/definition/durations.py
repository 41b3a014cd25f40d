"""Which durations can be waited for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

__all__ = ["LONGEST", "checked_duration"]

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
