"""The suite: ``python -m tests.run``, or ``make test``; with ``GENEVA_TEST_ALL=1``, the whole matrix.

Each run is one pytest process on one database in one environment, for a part of the tests. Some go side by
side: while one waits for its server's disk, locks or a process, another computes, and every run makes its
tables once. Tests marked ``serial`` follow, alone. Tests that touch no database run once in each environment.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from tests.environments import CannotBuild, Environment, environment, interpreters, prepare_newest
from tests.parts import Part
from tests.pytest_runs import Run, compile_all, run_all
from tests.servers.brokers import BROKERS, Broker, broker_variable, find_broker
from tests.servers.databases import ENGINES, url_variable
from tests.servers.find import Server, find
from tests.servers.processes import CannotStart
from tests.summary import LABELS, Plan, summary

# The longest first, so that no core is idle at the end.
ORDER = ("postgresql", "mysql", "mariadb", "sqlite")
USUAL = ("postgresql", "sqlite")
# Where the tests run that touch no database: in the shortest run.
WITH_THE_OTHERS = ORDER[::-1]
ON_NEWEST = ("postgresql", "sqlite")
# In CI, a run without these has not tested the package.
REQUIRED_IN_CI = ("postgresql", "mariadb")


def main() -> int:
    """Find servers, run, add up. Returns the exit status."""
    arguments = _arguments()
    everything = os.environ.get("GENEVA_TEST_ALL") == "1"
    databases: list[str] = arguments.databases or list(ORDER if everything else USUAL)
    signal.signal(signal.SIGTERM, _terminate)
    started = time.monotonic()
    plan = Plan()
    servers: dict[str, Server] = {}
    brokers: list[Broker] = []
    try:
        for database in databases:
            if database != "sqlite":
                _find(database, servers, plan)
        # One test at a time, on one database, starts what it needs by itself.
        if not arguments.quick:
            for name in BROKERS:
                _find_broker(name, brokers, plan)
        environments = [(environment(Path(sys.executable)), databases)]
        if everything and not arguments.quick:
            environments += _newest(databases, plan)
        compile_all([one for one, _ in environments])
        wanted = [
            (one, database)
            for database in ORDER
            for one, here in environments
            if database in here and (database in servers or database == "sqlite")
        ]
        # A newcomer's run starts processes on one database. CI, and who names databases, on each.
        chosen = wanted if everything or arguments.databases else wanted[:1]
        if chosen != wanted:
            where = LABELS[chosen[0][1]]
            plan.notes.append(f"Tests that start processes ran on {where} alone; test-all runs them on each.")
        runs = _runs(wanted, servers, chosen)
        with tempfile.TemporaryDirectory(prefix="geneva-runs-") as notes:
            done = run_all(runs, Path(notes), arguments.pytest)
    finally:
        privates = [each.private for each in servers.values()] + [each.private for each in brokers]
        for private in privates:
            if private is not None:
                private.stop()
    print(summary(done, plan, time.monotonic() - started), flush=True)
    passed = sum(one.outcome.passed for one in done)
    return 1 if plan.broken or not passed or any(one.failed for one in done) else 0


def _runs(
    wanted: list[tuple[Environment, str]],
    servers: dict[str, Server],
    starting: list[tuple[Environment, str]],
) -> list[Run]:
    """One or two for each database in each environment, the longest first, so that no core is idle at the end.

    Those that start processes run where ``starting`` says.
    """
    planned: list[tuple[Environment, str, tuple[Part, ...]]] = []
    for one, database in wanted:
        beside = [other for environment, other in wanted if environment == one]
        plain = (Part.PLAIN,) if database == min(beside, key=WITH_THE_OTHERS.index) else ()
        if (one, database) in starting:
            planned.append((one, database, (Part.PROCESSES,)))
        planned.append((one, database, (Part.DATABASE, *plain)))
    return [
        Run(one, database, servers.get(database), number, parts)
        for number, (one, database, parts) in enumerate(planned)
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.run", description="The whole suite.")
    parser.add_argument(
        "--databases",
        nargs="+",
        choices=sorted(ENGINES),
    )
    parser.add_argument("--quick", action="store_true", help="this environment alone")
    parser.add_argument("pytest", nargs="*", help="after --, for pytest")
    return parser.parse_args()


def _find(database: str, servers: dict[str, Server], plan: Plan) -> None:
    try:
        server = servers[database] = find(database, os.environ)
    except CannotStart as error:
        named = url_variable(database) in os.environ
        required = os.environ.get("CI") == "true" and database in REQUIRED_IN_CI
        plan.leave_out(LABELS[database], str(error), broken=named or required)
        print(f"{LABELS[database]}: {error}", flush=True)
    else:
        where = "of our own" if server.private else "found running"
        print(f"{LABELS[database]} {server.version}, {where}", flush=True)


def _find_broker(name: str, brokers: list[Broker], plan: Plan) -> None:
    named = broker_variable(name) in os.environ
    try:
        broker = find_broker(name, os.environ)
    except CannotStart as error:
        broken = named or os.environ.get("CI") == "true"
        plan.leave_out(f"{LABELS[name]}'s tests", str(error), broken=broken)
        print(f"{LABELS[name]}: {error}", flush=True)
    else:
        brokers.append(broker)
        # The runs' processes inherit it.
        os.environ[broker_variable(name)] = broker.url
        print(f"{LABELS[name]}, {'of our own' if broker.private else 'found running'}", flush=True)


def _newest(databases: list[str], plan: Plan) -> list[tuple[Environment, list[str]]]:
    if len(interpreters()) == 1:
        plan.notes.append(f"Python {interpreters()[0]} is the only one here.")
    try:
        return [(environment(prepare_newest()), [one for one in databases if one in ON_NEWEST])]
    except CannotBuild as error:
        plan.leave_out("The newest Python and Django", str(error), broken=False)
        return []


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
