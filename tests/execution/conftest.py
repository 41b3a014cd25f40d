from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.execution.loops import HOOK
from tests.execution.scripted import Scripted
from tests.execution.support import own_classes_forgotten, trace


@pytest.fixture(autouse=True)
def _left_alone() -> Iterator[None]:
    trace.clear()
    with own_classes_forgotten():
        yield


@pytest.fixture(autouse=True)
def _no_hook() -> None:
    HOOK.clear()


@pytest.fixture(autouse=True)
def _counted_from_zero() -> None:
    Scripted.runs = 0
    Scripted.handled = []
