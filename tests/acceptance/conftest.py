from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import Launcher
from tests.acceptance.room import VARIABLE, Room


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    """Where the bodies of this test's workflows tell what they do."""
    folder = tmp_path / "room"
    folder.mkdir()
    monkeypatch.setenv(VARIABLE, str(folder))
    return Room(folder)


@pytest.fixture
def launch(
    transactional_db: None, room: Room, child_environment: Callable[[], dict[str, str]], tmp_path: Path
) -> Iterator[Launcher]:
    """Starts worker processes; those that are left when the test ends are killed."""
    launcher = Launcher(child_environment(), tmp_path)
    yield launcher
    launcher.close()
