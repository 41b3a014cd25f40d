"""Fixtures of the tests that start real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import Launcher
from tests.acceptance.room import VARIABLE, Room

__all__ = ["launch", "launcher_class", "room"]


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    """The folder in which the bodies of this test's workflows record what they do."""
    folder = tmp_path / "room"
    folder.mkdir()
    monkeypatch.setenv(VARIABLE, str(folder))
    return Room(folder)


@pytest.fixture
def launcher_class() -> type[Launcher]:
    """Return the launcher of processes; other folders override it."""
    return Launcher


@pytest.fixture
def launch(
    transactional_db: None,
    room: Room,
    child_environment: Callable[[], dict[str, str]],
    tmp_path: Path,
    launcher_class: type[Launcher],
) -> Iterator[Launcher]:
    """Return a launcher that kills the remaining processes when the test ends."""
    launcher = launcher_class(child_environment(), tmp_path)
    yield launcher
    launcher.close()
