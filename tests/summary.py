"""The last lines of the suite: what ran, what was skipped, what did not run and why."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.report import Outcome

__all__ = ["LABELS", "Done", "Plan", "summary"]

SLOWEST = 20

LABELS = {
    "sqlite": "SQLite",
    "postgresql": "PostgreSQL",
    "mysql": "MySQL",
    "mariadb": "MariaDB",
    "redis": "Redis",
    "rabbitmq": "RabbitMQ",
}


@dataclass
class Plan:
    """What the suite could not do. ``broken``: it had to be able to."""

    left_out: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    broken: bool = False

    def leave_out(self, what: str, reason: str, *, broken: bool) -> None:
        """Note that ``what`` does not run."""
        self.left_out.append((what, reason))
        self.broken = self.broken or broken


@dataclass
class Done:
    """One run that has ended."""

    environment: str
    database: str
    version: str
    seconds: float
    outcome: Outcome = field(default_factory=Outcome)
    problem: str = ""

    @property
    def failed(self) -> int:
        """Tests that failed; a run that broke counts as one."""
        return self.outcome.failed

    @property
    def title(self) -> str:
        """Environment and database, with versions."""
        return f"{self.environment}, {LABELS[self.database]} {self.version}"

    @property
    def counts(self) -> str:
        """Passed, failed and skipped."""
        outcome = self.outcome
        return f"{outcome.passed} passed, {outcome.failed} failed, {len(outcome.skipped)} skipped"

    def add(self, other: Done) -> None:
        """Count in another part of the tests on the same database in the same environment."""
        self.seconds += other.seconds
        self.problem = self.problem or other.problem
        self.outcome.passed += other.outcome.passed
        self.outcome.failed += other.outcome.failed
        self.outcome.skipped += other.outcome.skipped
        self.outcome.without_database += other.outcome.without_database
        self.outcome.seconds.update(other.outcome.seconds)


def summary(done: list[Done], plan: Plan, seconds: float) -> str:
    """The text; its last line is the sum of the counts, alone."""
    width = max((len(one.title) for one in done), default=0)
    lines = ["", f"What ran, in {seconds:.0f} seconds:"]
    for one in done:
        lines.append(f"  {one.title:{width}}  {one.counts}, {one.seconds:.0f} s")
        if one.problem:
            lines.append(f"    {one.problem}")
    lines += _without_database(done)
    lines += _slowest(done)
    if skipped := _skipped(done):
        lines += ["Skipped:", *skipped]
    lines += [f"Did not run: {what}: {reason}" for what, reason in plan.left_out]
    lines += plan.notes
    passed = sum(one.outcome.passed for one in done)
    failed = sum(one.outcome.failed for one in done)
    total_skipped = sum(len(one.outcome.skipped) for one in done)
    # A part that had to run and could not is a failure, so that the last line never looks green.
    lines.append(f"{passed} passed, {failed + plan.broken} failed, {total_skipped} skipped")
    return "\n".join(lines)


def _without_database(done: list[Done]) -> list[str]:
    """How many tests touch no database, and where they ran."""
    lines = []
    for environment in dict.fromkeys(one.environment for one in done):
        runs = [one for one in done if one.environment == environment]
        for one in runs:
            left = [other for other in runs if not other.outcome.without_database]
            if one.outcome.without_database and left:
                others = " and ".join(LABELS[other.database] for other in left)
                lines.append(
                    f"  {one.outcome.without_database} tests that touch no database ran once in"
                    f" {environment}: beside those on {LABELS[one.database]}, not again beside those on {others}"
                )
    return lines


def _slowest(done: list[Done]) -> list[str]:
    """The tests that took longest, over all runs."""
    seconds: dict[str, float] = defaultdict(float)
    runs: dict[str, int] = defaultdict(int)
    for one in done:
        for test, took in one.outcome.seconds.items():
            seconds[test] += took
            runs[test] += 1
    total = sum(seconds.values())
    slowest = sorted(seconds, key=lambda test: (-seconds[test], test))[:SLOWEST]
    if not total:
        return []
    share = sum(seconds[test] for test in slowest) / total
    lines = [f"The {len(slowest)} slowest of {len(seconds)} tests, {share:.0%} of their {total:.0f} seconds:"]
    for test in slowest:
        times = f" in {runs[test]} runs" if runs[test] > 1 else ""
        lines.append(f"  {seconds[test]:.1f} s{times}  {test}")
    return lines


def _skipped(done: list[Done]) -> list[str]:
    """One line for each test and reason, with the databases where it was so."""
    where: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in done:
        for test, reason in one.outcome.skipped:
            where[test, reason].append(f"{one.environment}, {LABELS[one.database]}")
    return [f"  {test}: {reason} ({'; '.join(places)})" for (test, reason), places in sorted(where.items())]
