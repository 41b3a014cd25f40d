"""Named ways to wait longer after each failure."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Final

__all__ = ["BACKOFFS", "LONGEST_BACKOFF", "backoff"]

LONGEST_BACKOFF: Final = timedelta(days=1)
"""What every named backoff is capped at."""

_JITTER: Final = 0.15
"""Taken off at random, up to this share: those that failed together shall not come back together."""

_STEEPEST: Final = 64
"""Attempts after which every curve is far beyond the cap; no greater power is ever computed."""

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
        Which reattempt it will be: 1 for the first.

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
