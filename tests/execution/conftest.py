from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.execution.loops import HOOK
from tests.execution.support import own_classes_forgotten, trace


@pytest.fixture(autouse=True)
def _left_alone() -> Iterator[None]:
    trace.clear()
    with own_classes_forgotten():
        yield


@pytest.fixture(autouse=True)
def _no_hook() -> None:
    HOOK.clear()
