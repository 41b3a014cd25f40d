"""Times in words."""

from __future__ import annotations

from datetime import datetime, timedelta

__all__ = ["ago", "in_words"]

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def in_words(delta: timedelta) -> str:
    """Return a duration in its two largest units: ``3d 4h``, ``12m 5s``, ``0.4s``."""
    seconds = delta.total_seconds()
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}s"
    parts = []
    rest = int(seconds)
    for size, name in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{name}")
    return " ".join(parts[:2])


def ago(moment: datetime, now: datetime) -> str:
    """Return how long ago a moment was."""
    delta = now - moment
    return "now" if delta < timedelta(seconds=1) else f"{in_words(delta)} ago"
