"""The whole suite: ``python -m tests.run``, or ``make test``.

Each run is one pytest process on one database in one environment. They go side by side, one for each
core: the databases then wait for each other's disks and locks, and every run makes its tables once.
Tests marked ``serial`` follow, alone.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tests import report
from tests.environments import (
    ROOT,
    CannotBuild,
    Environment,
    environment,
    interpreters,
    prepare_newest,
)
from tests.servers.databases import ENGINES, url_variable
from tests.servers.find import Server, find
from tests.servers.login import drop_databases
from tests.servers.processes import CannotStart
from tests.summary import LABELS, Done, Plan, summary

# The longest first, so that no core is idle at the end.
ORDER = ("mysql", "mariadb", "postgresql", "sqlite")
ON_NEWEST = ("postgresql", "sqlite")
# In CI, a run without these has not tested the package.
REQUIRED_IN_CI = ("postgresql", "mariadb")
RUN_SECONDS = 45 * 60
NO_TESTS = 5


@dataclass(frozen=True)
class Run:
    """One pytest process to come."""

    environment: Environment
    database: str
    server: Server | None
    number: int

    @property
    def name(self) -> str:
        """The stem of this run's databases: no other run has it, also on a server shared with others."""
        return f"geneva_{os.getpid()}_{self.number}"


def main() -> int:
    """Find servers, run, add up. Returns the exit status."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, _terminate)
    started = time.monotonic()
    plan = Plan()
    servers: dict[str, Server] = {}
    try:
        for database in arguments.databases:
            if database != "sqlite":
                _find(database, servers, plan)
        environments = [(environment(Path(sys.executable)), arguments.databases)]
        if not arguments.quick:
            environments += _newest(arguments.databases, plan)
        wanted = [
            (one, database)
            for database in ORDER
            for one, databases in environments
            if database in databases and (database in servers or database == "sqlite")
        ]
        runs = [Run(*both, servers.get(both[1]), number) for number, both in enumerate(wanted)]
        with tempfile.TemporaryDirectory(prefix="geneva-runs-") as notes:
            done = _run_all(runs, Path(notes), arguments.pytest)
    finally:
        for server in servers.values():
            if server.private is not None:
                server.private.stop()
    print(summary(done, plan, time.monotonic() - started), flush=True)
    ran = sum(one.outcome.passed for one in done)
    return 1 if plan.broken or not ran or any(one.failed for one in done) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--databases", nargs="+", choices=sorted(ENGINES), default=list(ORDER))
    parser.add_argument("--quick", action="store_true", help="this environment alone")
    parser.add_argument("pytest", nargs="*", help="after --, for pytest")
    return parser.parse_args()


def _find(database: str, servers: dict[str, Server], plan: Plan) -> None:
    try:
        server = servers[database] = find(database, os.environ)
    except CannotStart as error:
        required = url_variable(database) in os.environ or (
            os.environ.get("CI") == "true" and database in REQUIRED_IN_CI
        )
        plan.leave_out(LABELS[database], str(error), broken=required)
        print(f"{LABELS[database]}: {error}", flush=True)
    else:
        where = "of our own" if server.private else "found running"
        print(f"{LABELS[database]} {server.version}, {where}", flush=True)


def _newest(databases: list[str], plan: Plan) -> list[tuple[Environment, list[str]]]:
    if len(interpreters()) == 1:
        plan.notes.append(f"Python {interpreters()[0]} is the only one here.")
    try:
        return [(environment(prepare_newest()), [one for one in databases if one in ON_NEWEST])]
    except CannotBuild as error:
        plan.leave_out("The newest Python and Django", str(error), broken=False)
        return []


def _run_all(runs: list[Run], notes: Path, extra: list[str]) -> list[Done]:
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        done = list(pool.map(lambda run: _run(run, notes, ["-m", "not serial", *extra]), runs))
    for run, before in zip(runs, done, strict=True):
        if before.outcome.serial:
            before.add(_run(run, notes, ["-m", "serial", *extra]))
    return done


def _run(run: Run, notes: Path, extra: list[str]) -> Done:
    """Run pytest once, keep its output to itself until it has ended, and read what it noted."""
    started = time.monotonic()
    note, output = notes / f"{run.number}.json", notes / f"{run.number}.txt"
    note.unlink(missing_ok=True)
    variables = {
        **os.environ,
        "GENEVA_TEST_DATABASE": run.database,
        "GENEVA_TEST_NAME": run.name,
        report.VARIABLE: str(note),
    }
    if run.server is not None:
        variables[url_variable(run.database)] = run.server.url
    command = [str(run.environment.python), "-m", "pytest", "-p", "tests.report", "-q", "-ra", *extra]
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, cwd=ROOT, env=variables
        )
        try:
            status: int | str = process.wait(RUN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = f"killed after {RUN_SECONDS} seconds"
    version = run.server.version if run.server else run.environment.versions["sqlite"]
    done = Done(str(run.environment), run.database, version, time.monotonic() - started)
    outcome = report.read(note)
    if outcome is not None:
        done.outcome = outcome
    if outcome is None or (status not in (0, NO_TESTS) and not done.outcome.failed):
        done.outcome.failed += 1
        done.problem = f"pytest ended with {status} and did not say why a test failed"
    _show(run, done, output)
    if outcome is None and run.server is not None:
        drop_databases(run.server.url, [f"test_{run.name}", f"test_{run.name}_other"])
    return done


def _show(run: Run, done: Done, output: Path) -> None:
    text = output.read_text(errors="replace").rstrip()
    heading = f"── {done.title} ── {done.counts}, {done.seconds:.0f} s"
    # A good run has nothing to tell beyond its counts.
    print(f"\n{heading}\n{text}\n" if done.failed else heading, flush=True)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
