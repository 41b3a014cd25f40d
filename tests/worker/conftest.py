from __future__ import annotations

import pytest

from tests.worker.support import TRACE


@pytest.fixture(autouse=True)
def _empty_trace() -> None:
    TRACE.clear()
