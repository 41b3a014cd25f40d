"""A pytest plugin that notes what a run did, for ``tests.run`` to add up. ``pytest -p tests.report``."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from tests.parts import Part, chosen_parts, part_of

__all__ = ["Outcome", "read"]

VARIABLE = "GENEVA_TEST_REPORT"


@dataclass
class Outcome:
    """What one run did.

    ``skipped`` has each test's id and reason, ``serial`` names the files with tests that were left for a run alone.
    ``without_database`` counts those that touch no database. ``seconds`` has each test's id and what it took
    with its fixtures.
    """

    passed: int = 0
    failed: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    serial: list[str] = field(default_factory=list)
    without_database: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def read(path: Path) -> Outcome | None:
    """The note of a run, or None where the run ended without one."""
    if not path.exists():
        return None
    noted = json.loads(path.read_text())
    noted["skipped"] = [(test, reason) for test, reason in noted["skipped"]]
    return Outcome(**noted)


class _Reporter:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcome = Outcome()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        seconds = self.outcome.seconds
        seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
        # A failure in a fixture's end counts beside the test's own result.
        if report.failed:
            self.outcome.failed += 1
        elif report.skipped:
            self.outcome.skipped.append((report.nodeid, _reason(report)))
        elif report.when == "call" and type(report) is pytest.TestReport:  # not a part of a test
            self.outcome.passed += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.outcome.failed += 1
        elif report.skipped:
            self.outcome.skipped.append((report.nodeid, _reason(report)))

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        chosen = chosen_parts()
        serial = {
            item.nodeid.partition("::")[0]
            for item in items
            if item.get_closest_marker("serial") and part_of(item) in chosen
        }
        self.outcome.serial = sorted({*self.outcome.serial, *serial})

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.outcome.without_database = sum(1 for item in session.items if part_of(item) is Part.PLAIN)

    def pytest_sessionfinish(self) -> None:
        for test, _ in self.outcome.skipped:
            self.outcome.seconds.pop(test, None)
        self.path.write_text(json.dumps(asdict(self.outcome)))


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if expected := getattr(report, "wasxfail", ""):
        return f"expected to fail: {expected}"
    # For a skip, pytest gives file, line and "Skipped: reason".
    return str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else "?"


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.get(VARIABLE)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Reporter(Path(path)), "geneva-report")
