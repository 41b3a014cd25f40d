"""How many bodies a worker may still run, shared by its threads."""

from __future__ import annotations

import threading

__all__ = ["Budget"]


class Budget:
    """Places for bodies: taken before anything is claimed for them, put back when no body came.

    Parameters
    ----------
    places
        None for no limit.

    Attributes
    ----------
    performed
        Bodies that were begun.
    """

    def __init__(self, places: int | None) -> None:
        self._places = places
        self._lock = threading.Lock()
        self.performed = 0

    def __repr__(self) -> str:
        return f"<Budget: {self._places} left, {self.performed} performed>"

    @property
    def left(self) -> int | None:
        """Places that nobody has taken; None for no limit."""
        return self._places

    def take(self, wanted: int) -> int:
        """Take up to so many places; return how many there were."""
        with self._lock:
            if self._places is None:
                return wanted
            taken = min(wanted, self._places)
            self._places -= taken
            return taken

    def put_back(self, count: int) -> None:
        """Give places back for which no body came."""
        with self._lock:
            if self._places is not None:
                self._places += count

    def count_body(self) -> None:
        """Note that a body begins."""
        with self._lock:
            self.performed += 1
