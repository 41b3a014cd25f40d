"""Pytest fixtures of the testing kit, for projects that name `geneva_drive.testing` as a plug-in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from geneva_drive import testing


@pytest.fixture
def geneva_travel() -> Iterator[Any]:
    """A function that moves the clock until the end of the test: ``geneva_travel(timedelta(days=3))``."""
    with contextlib.ExitStack() as stack:
        yield lambda delta: stack.enter_context(testing.travel(delta))


@pytest.fixture
def geneva_run_to_end() -> Any:
    """`run_to_end`."""
    return testing.run_to_end


@pytest.fixture
def geneva_run_next_step() -> Any:
    """`run_next_step`."""
    return testing.run_next_step


@pytest.fixture
def geneva_run_due() -> Any:
    """`run_due`."""
    return testing.run_due
