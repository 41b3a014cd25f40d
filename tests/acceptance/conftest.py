from __future__ import annotations

from tests.acceptance.fixtures import launch, launcher_class, room

__all__ = ["launch", "launcher_class", "room"]
