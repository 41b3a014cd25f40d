"""For tests of workflows: run them here and now, without threads, in any kind of test case.

Everything works inside a plain ``TestCase``: nothing waits for a commit, nothing needs a worker, and no
process row is written. With ``pytest_plugins = ["geneva_drive.testing"]`` in the project's ``conftest.py``,
pytest has the fixtures ``geneva_run_to_end``, ``geneva_run_next_step``, ``geneva_run_due`` and
``geneva_travel``.
"""

from __future__ import annotations

from geneva_drive.testing.assertions import assert_cursor, assert_state, assert_step, assert_waiting_for
from geneva_drive.testing.crashing import POINTS, ProcessKilled, crash_at
from geneva_drive.testing.running import run_due, run_iterations, run_next_step, run_step, run_to_end
from geneva_drive.testing.travelling import travel

__all__ = [
    "POINTS",
    "ProcessKilled",
    "assert_cursor",
    "assert_state",
    "assert_step",
    "assert_waiting_for",
    "crash_at",
    "run_due",
    "run_iterations",
    "run_next_step",
    "run_step",
    "run_to_end",
    "travel",
]

# Read by pytest alone, so that other test runners can do without it.
pytest_plugins = ["geneva_drive.testing.fixtures"]
