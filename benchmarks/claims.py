"""The cost of a claim among millions of rows that are not due, on PostgreSQL and MySQL.

``python -m benchmarks.claims [--rows 1000000] [--databases postgresql mysql] [--plans]`` starts its own servers. The
same operations are measured in one run: first with only ten due rows; then with a million finished rows, a million
that are due next month and a million overdue ones of paused workflows in addition. On PostgreSQL they are also measured
with the dead versions of many rows that were due a moment ago and cannot be vacuumed yet.

Times are medians. Buffers (PostgreSQL: 8 KiB pages) and rows read (MySQL: the handler's counts) are the sum over the
queries of one operation. ``--plans`` prints the query plans.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.servers.binaries import STARTERS
from tests.servers.login import server_version
from tests.servers.processes import CannotStart

DATABASE = "geneva_claims"
REPEAT = 30


def main() -> int:
    """Start the servers one after the other, and measure each in a child process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--databases", nargs="+", choices=["postgresql", "mysql", "mariadb"])
    parser.add_argument("--plans", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments.rows, arguments.plans)
    for database in arguments.databases or ["postgresql", "mysql"]:
        try:
            server = STARTERS[database](None)
        except CannotStart as error:
            print(f"{database}: {error}", flush=True)
            continue
        try:
            scheme = "postgresql" if database == "postgresql" else "mysql"
            variables = {
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
                "GENEVA_BENCH_URL": f"{scheme}://{server.url.split('://')[1]}{DATABASE}",
            }
            _create_database(database, server.url)
            print(f"\n{database} {server_version(server.url)}", flush=True)
            flags = ["--plans"] if arguments.plans else []
            command = [sys.executable, "-m", "benchmarks.claims", "--child", "--rows", str(arguments.rows)]
            subprocess.run([*command, *flags], env=variables, check=True)
        finally:
            server.stop()
    return 0


def _create_database(database: str, url: str) -> None:
    if database == "postgresql":
        import psycopg

        with psycopg.connect(f"{url}postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
        return
    import MySQLdb

    connection = MySQLdb.connect(host="127.0.0.1", port=int(url.rstrip("/").rsplit(":", 1)[1]), user="root")
    connection.cursor().execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
    connection.close()


def child(rows: int, show_plans: bool) -> int:
    """Fill the database and measure."""
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    call_command("migrate", run_syncdb=True, verbosity=0)
    _insert("ready", "scheduled", "0", 10)
    _analyze()
    alone = ask(show_plans)
    began = time.monotonic()
    _insert("finished", "completed", "-86400", rows)
    _insert("ready", "scheduled", "30 * 86400", rows)
    _insert("paused", "scheduled", "-86400", rows, on_hold=True)
    _analyze()
    print(f"{3 * rows:,} workflows with an execution each, in {time.monotonic() - began:.0f} s", flush=True)
    among_others = ask(show_plans)
    tables = {"only ten due rows": alone, f"and 3 x {rows:,} others": among_others}
    if connection.vendor == "postgresql":
        with _dead_versions(rows // 5):
            tables[f"and {rows // 5:,} dead versions"] = ask(show_plans)
        _until_cleaned()
        tables["after the vacuum"] = ask(show_plans)
    _print(tables)
    return 0


def ask(show_plans: bool) -> dict[str, tuple[float, int]]:
    """Return the median milliseconds of each operation, and its buffers or rows read."""
    from geneva_drive.housekeeping import recover
    from geneva_drive.models import StepExecution
    from geneva_drive.worker import claiming

    acts: dict[str, Callable[[], Any]] = {
        "find queues and priorities": lambda: StepExecution.objects.using("default").buckets(),
        "find due executions": lambda: next(claiming._pages("default", "default", 0, 1), None),
        "claim one and release it": _claim_and_release,
        "check if anything is due": lambda: claiming.is_anything_due("default", None),
        "recover, with nothing to recover": lambda: recover("default"),
    }
    found = {}
    for name, act in acts.items():
        act()
        times = []
        for _ in range(REPEAT):
            began = time.perf_counter()
            act()
            times.append(1000 * (time.perf_counter() - began))
        found[name] = (statistics.median(times), _work(act, show_plans))
    return found


def _claim_and_release() -> None:
    from geneva_drive.execution import recovery
    from geneva_drive.execution.runner import Runner
    from geneva_drive.worker.claiming import CandidateCache, claim

    (claimed,) = claim("default", CandidateCache("default", None), 1, Runner())
    recovery.release(claimed)


def _work(act: Callable[[], Any], show_plans: bool) -> int:
    """Return the pages that PostgreSQL touches, or the rows that MySQL reads, in one operation."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("FLUSH STATUS")
            act()
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            rows = sum(int(value) for _, value in cursor.fetchall())
            if not show_plans:
                return rows
        with CaptureQueriesContext(connection) as captured:
            act()
        pages = 0
        for query in captured.captured_queries:
            if not query["sql"].startswith("SELECT"):
                continue
            pages += _explain(cursor, query["sql"], show_plans)
    return pages if connection.vendor == "postgresql" else rows


def _explain(cursor: Any, sql: str, show: bool) -> int:
    from django.db import connection

    sql = sql.replace("%", "%%")
    if connection.vendor != "postgresql":
        cursor.execute(f"EXPLAIN {sql}", [])
        if show:
            print("\n".join(" ".join(str(value) for value in row) for row in cursor.fetchall()), "\n")
        return 0
    cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", [])
    (found,) = cursor.fetchone()
    plan = (found if isinstance(found, list) else json.loads(found))[0]["Plan"]
    if show:
        print(sql[:200], json.dumps(plan, indent=1), "\n")
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


# -- rows


def _insert(state: str, execution_state: str, seconds: str, count: int, *, on_hold: bool = False) -> None:
    """Insert workflows of one kind, each with an execution that is due this many seconds from now."""
    from django.db import connection

    postgresql = connection.vendor == "postgresql"
    if postgresql:
        numbers, now = f"generate_series(1, {count}) AS numbers(n)", "now()"
        due = f"now() + ({seconds}) * interval '1 second' + n * interval '1 millisecond'"
    else:
        numbers, now = "numbers", "UTC_TIMESTAMP(6)"
        due = f"UTC_TIMESTAMP(6) + INTERVAL ({seconds}) SECOND + INTERVAL n * 1000 MICROSECOND"
    if execution_state == "scheduled" and seconds == "0":
        due = now
    ended = "NULL" if state == "ready" else now
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(id), 0) FROM geneva_drive_workflow")
        (first,) = cursor.fetchone()
        for start in range(0, count, 250_000):
            size = min(250_000, count - start)
            if postgresql:
                numbers, with_numbers = f"generate_series({start + 1}, {start + size}) AS numbers(n)", ""
            else:
                cursor.execute(f"SET SESSION cte_max_recursion_depth = {size + 10}")
                with_numbers = (
                    f"WITH RECURSIVE numbers AS (SELECT {start + 1} AS n "
                    f"UNION ALL SELECT n + 1 FROM numbers WHERE n < {start + size})"
                )
            cursor.execute(
                f"""INSERT INTO geneva_drive_workflow
                        (id, type, state, next_step_name, allow_multiple, created_at, updated_at, transitioned_at)
                    {with_numbers}
                    SELECT {first} + n, 'app.Noop', '{state}', 'one', false, {now}, {now}, {ended}
                    FROM {numbers}"""
            )
            cursor.execute(
                f"""INSERT INTO geneva_drive_stepexecution
                        (workflow_id, step_name, state, queue, priority, scheduled_for, on_hold, handed_off,
                         iterations, crashes, created_at)
                    {with_numbers}
                    SELECT {first} + n, 'one', '{execution_state}', 'default', 0, {due}, {on_hold}, false, 0, 0, {now}
                    FROM {numbers}"""
            )


def _analyze() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("VACUUM ANALYZE")
            return
        for table in ("workflow", "stepexecution", "process"):
            cursor.execute(f"ANALYZE TABLE geneva_drive_{table}")
            cursor.fetchall()


class _dead_versions:  # noqa: N801 - used as a context manager
    """Create rows that were due until a moment ago, and an old snapshot that prevents their removal."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __enter__(self) -> None:
        from django.db import connection

        _insert("finished", "scheduled", "-3600", self._count)
        self._old = connection.copy()
        with self._old.cursor() as old:
            old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            old.execute("SELECT count(*) FROM geneva_drive_process")
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE geneva_drive_stepexecution e SET state = 'completed', outcome = 'success' "
                "FROM geneva_drive_workflow w WHERE w.id = e.workflow_id AND w.state = 'finished' "
                "AND e.state = 'scheduled'"
            )

    def __exit__(self, *exc: object) -> None:
        self._old.close()


def _until_cleaned() -> None:
    _analyze()


def _print(tables: dict[str, dict[str, tuple[float, int]]]) -> None:
    from django.db import connection

    unit = "pages" if connection.vendor == "postgresql" else "rows read"
    names = list(tables)
    print(f"{'':32}" + "".join(f"{name:>32}" for name in names))
    for act in tables[names[0]]:
        cells = "".join(
            f"{f'{tables[name][act][0]:.2f} ms, {tables[name][act][1]} {unit}':>32}" for name in names
        )
        print(f"{act:32}{cells}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
