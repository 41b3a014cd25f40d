"""What the doctor says."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    level
        "ok", "note", "warning" or "error".
    subject
        What was looked at, in a word or two.
    """

    level: str
    subject: str
    message: str
    remedy: str = ""
