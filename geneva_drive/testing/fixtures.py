"""The kit as fixtures. Loaded by pytest in a project that names `geneva_drive.testing` as a plug-in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from geneva_drive.testing import run_due, run_next_step, run_to_end, travel


@pytest.fixture(name="geneva_travel")
def _travel_fixture() -> Iterator[Any]:
    """A function that moves the clock until the end of the test: ``geneva_travel(timedelta(days=3))``."""
    with contextlib.ExitStack() as stack:
        yield lambda delta: stack.enter_context(travel(delta))


@pytest.fixture(name="geneva_run_to_end")
def _run_to_end_fixture() -> Any:
    """`run_to_end`."""
    return run_to_end


@pytest.fixture(name="geneva_run_next_step")
def _run_next_step_fixture() -> Any:
    """`run_next_step`."""
    return run_next_step


@pytest.fixture(name="geneva_run_due")
def _run_due_fixture() -> Any:
    """`run_due`."""
    return run_due
