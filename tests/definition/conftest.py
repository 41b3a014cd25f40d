from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.definition.support import registry_left_alone


@pytest.fixture(autouse=True)
def _registry_left_alone() -> Iterator[None]:
    with registry_left_alone():
        yield
