"""What a run notes, and what the suite says at its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.report import VARIABLE, Outcome, read
from tests.summary import Done, Plan, summary

ROOT = Path(__file__).resolve().parent.parent.parent

EXAMPLES = """
import pytest

def test_good(): pass
def test_bad(): assert 0
def test_later(): pytest.skip("no time")
@pytest.mark.xfail(reason="known")
def test_known(): assert 0
@pytest.fixture
def broken():
    yield
    raise RuntimeError
def test_with_a_bad_end(broken): pass
"""


def test_a_run_notes_each_result_once(tmp_path: Path) -> None:
    (tmp_path / "test_examples.py").write_text(EXAMPLES)
    (tmp_path / "test_that_does_not_import.py").write_text("import nothing_of_this_name")
    note = tmp_path / "note.json"

    options = ["-p", "tests.report", "-p", "no:django", "-p", "no:cacheprovider", "-q", "-c", os.devnull]
    options += ["--continue-on-collection-errors", f"--rootdir={tmp_path}", str(tmp_path)]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=ROOT,
        env={**os.environ, VARIABLE: str(note)},
        capture_output=True,
        check=False,
    )

    outcome = read(note)
    assert outcome is not None
    assert outcome.without_database == 5
    assert [test.partition("::")[2] for test in outcome.seconds] == [
        "test_good",
        "test_bad",
        "test_with_a_bad_end",
    ]
    # test_bad, the end of the fixture, and the module that cannot be imported.
    assert (outcome.passed, outcome.failed) == (2, 3)
    assert outcome.skipped == [
        ("test_examples.py::test_later", "no time"),
        ("test_examples.py::test_known", "expected to fail: known"),
    ]


def test_a_run_that_broke_off_has_no_note(tmp_path: Path) -> None:
    assert read(tmp_path / "note.json") is None


def test_the_last_lines_name_the_slowest_tests_and_what_ran_once() -> None:
    oldest = "Python 3.11.7, Django 5.2.1"
    done = [
        Done(oldest, "postgresql", "15.1", 60, Outcome(2, seconds={"a": 8.0, "b": 1.0})),
        Done(oldest, "sqlite", "3.40.1", 30, Outcome(3, without_database=1, seconds={"a": 0.5, "c": 0.5})),
    ]

    text = summary(done, Plan(), 62).splitlines()

    assert (
        "  1 tests that touch no database ran once in Python 3.11.7, Django 5.2.1:"
        " beside those on SQLite, not again beside those on PostgreSQL"
    ) in text
    begin = text.index("The 3 slowest of 3 tests, 100% of their 10 seconds:")
    assert text[begin + 1 : begin + 4] == ["  8.5 s in 2 runs  a", "  1.0 s  b", "  0.5 s  c"]


def test_the_last_lines_name_what_ran_what_was_skipped_and_what_did_not_run() -> None:
    plan = Plan()
    plan.leave_out("MySQL", "mysqld is not installed", broken=False)
    skip = ("tests/test_a.py::test_b", "only on PostgreSQL")
    done = [
        Done("Python 3.11.7, Django 5.2.1", "sqlite", "3.40.1", 3, Outcome(7, 0, [skip])),
        Done("Python 3.13.0, Django 6.1.1", "mariadb", "10.11.6", 4, Outcome(6, 1, [skip])),
    ]

    assert summary(done, plan, 9.2).strip().splitlines() == [
        "What ran, in 9 seconds:",
        "  Python 3.11.7, Django 5.2.1, SQLite 3.40.1    7 passed, 0 failed, 1 skipped, 3 s",
        "  Python 3.13.0, Django 6.1.1, MariaDB 10.11.6  6 passed, 1 failed, 1 skipped, 4 s",
        "Skipped:",
        "  tests/test_a.py::test_b: only on PostgreSQL"
        " (Python 3.11.7, Django 5.2.1, SQLite; Python 3.13.0, Django 6.1.1, MariaDB)",
        "Did not run: MySQL: mysqld is not installed",
        "13 passed, 1 failed, 2 skipped",
    ]


def test_a_database_that_had_to_run_and_could_not_is_a_failure() -> None:
    plan = Plan()
    plan.leave_out("PostgreSQL", "initdb is not installed", broken=True)
    done = [Done("Python 3.11.7, Django 5.2.1", "sqlite", "3.40.1", 1, Outcome(passed=1))]

    assert summary(done, plan, 1).splitlines()[-1] == "1 passed, 1 failed, 0 skipped"
