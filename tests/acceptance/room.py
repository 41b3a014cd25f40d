"""A folder in which processes record what they did and what they wait for."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["VARIABLE", "Room", "room"]

VARIABLE = "GENEVA_TEST_ROOM"

_PATIENCE = 60.0
"""Seconds after which a body stops waiting, so that no process outlives its test for long."""


class Room:
    """One line in ``log`` per event; one empty file per permission."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, *words: object) -> None:
        """Append a line; lines of concurrent processes do not interleave."""
        line = " ".join(str(word) for word in (*words, os.getpid())) + "\n"
        descriptor = os.open(self.folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def notes(self, first: str | None = None) -> list[list[str]]:
        """Return the recorded lines in order, each split into words, with the process id last."""
        try:
            text = (self.folder / "log").read_text()
        except FileNotFoundError:
            return []
        lines = [line.split() for line in text.splitlines()]
        return [words for words in lines if first is None or words[0] == first]

    def allow(self, what: str) -> None:
        (self.folder / what).touch()

    def forbid(self, what: str) -> None:
        (self.folder / what).unlink(missing_ok=True)

    def is_allowed(self, what: str) -> bool:
        return (self.folder / what).exists()

    def wait_until_allowed(self, what: str) -> None:
        until = time.monotonic() + _PATIENCE
        while not self.is_allowed(what):
            if time.monotonic() > until:
                raise TimeoutError(f"nobody allowed {what!r}")
            time.sleep(0.01)


def room() -> Room:
    """Return the room of the test that started this process."""
    return Room(Path(os.environ[VARIABLE]))
