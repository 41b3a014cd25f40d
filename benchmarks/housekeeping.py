"""Housekeeping with many rows, on PostgreSQL.

``python -m benchmarks.housekeeping [--workflows 500000] [--in-progress 1000000]`` starts its own server. First it
measures recovery: ten executions without a process that have been in progress for too long, among a million recent ones
of live processes, with a statement timeout of a second. Then it measures the cleanup of half a million workflows that
ended long ago, with four executions each; half of them ended at the same moment. Memory is the peak of the process.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import psycopg

from tests.servers.binaries import start_postgresql

DATABASE = "geneva_housekeeping"


def main() -> int:
    """Start a server, and measure in a child process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.housekeeping", description=__doc__)
    parser.add_argument("--workflows", type=int, default=500_000)
    parser.add_argument("--in-progress", type=int, default=1_000_000)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments.workflows, arguments.in_progress)
    server = start_postgresql()
    try:
        with psycopg.connect(f"{server.url}postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
        variables = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
            "GENEVA_BENCH_URL": f"{server.url}{DATABASE}",
        }
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.housekeeping", "--child", *sys.argv[1:]],
            env=variables,
            check=False,
        )
        return done.returncode
    finally:
        server.stop()


def child(workflows: int, in_progress: int) -> int:
    """Fill the database, then recover and clean up."""
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from geneva_drive.housekeeping import Counts, clean_up, recover
    from geneva_drive.models import StepExecution, Workflow

    call_command("migrate", run_syncdb=True, verbosity=0)
    with connection.cursor() as cursor:
        _processes(cursor, 20)
        _insert(cursor, "performing", in_progress, 1, "in_progress", process=True, started="now()")
        _insert(cursor, "performing", 10, 1, "in_progress", process=False, started="now() - interval '1 day'")
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("SET statement_timeout = '1s'")
        began = time.monotonic()
        counts = recover("default")
        print(
            f"recovery among {in_progress:,} recent rows: {time.monotonic() - began:.2f} s, {counts}",
            flush=True,
        )
        cursor.execute("SET statement_timeout = 0")
        cursor.execute("TRUNCATE geneva_drive_workflow CASCADE")

        half = workflows // 2
        _insert(cursor, "finished", half, 4, "completed", ended="now() - interval '60 days'")
        _insert(
            cursor, "canceled", half, 4, "canceled", ended="now() - interval '90 days' + n * interval '1 s'"
        )
        _insert(cursor, "finished", 1000, 4, "completed", ended="now()")
        cursor.execute("VACUUM ANALYZE")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = last = time.monotonic()
    longest = 0.0

    def progress(_: Counts) -> None:
        nonlocal last, longest
        longest = max(longest, time.monotonic() - last)
        last = time.monotonic()

    counts = clean_up("default", retention=timedelta(days=30), progress=progress)
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"cleanup: {seconds:.1f} s, {counts}")
    print(f"{counts.workflows / seconds:.0f} workflows/s; longest batch {longest:.2f} s")
    print(f"peak memory {before // 1024} MiB before, {after // 1024} MiB after")
    left = Workflow.objects.count(), StepExecution.objects.count()
    print(f"remaining: {left[0]} workflows, {left[1]} executions")
    return 0 if left == (1000, 4000) else 1


def _processes(cursor: Any, count: int) -> None:
    execute = cursor.execute
    execute(
        f"""INSERT INTO geneva_drive_process (id, hostname, pid, kind, queues, started_at, heartbeat_at)
            SELECT gen_random_uuid(), 'here', n, 'worker', '', now(), now() + interval '1 hour'
            FROM generate_series(1, {count}) AS numbers(n)"""
    )


def _insert(
    cursor: Any,
    state: str,
    count: int,
    executions: int,
    execution_state: str,
    *,
    ended: str = "NULL",
    started: str = "NULL",
    process: bool = False,
) -> None:
    execute = cursor.execute
    fetchone = cursor.fetchone
    execute("SELECT coalesce(max(id), 0) FROM geneva_drive_workflow")
    (first,) = fetchone()
    execute(
        f"""INSERT INTO geneva_drive_workflow
                (id, type, state, allow_multiple, created_at, updated_at, transitioned_at)
            SELECT {first} + n, 'app.Noop', '{state}', false, now(), now(), {ended}
            FROM generate_series(1, {count}) AS numbers(n)"""
    )
    owner = "(SELECT array_agg(id) FROM geneva_drive_process)" if process else "NULL::uuid[]"
    execute(
        f"""WITH p AS (SELECT {owner} AS ids)
            INSERT INTO geneva_drive_stepexecution
                (workflow_id, step_name, state, queue, priority, scheduled_for, started_at, process_id,
                 attempt_token, on_hold, handed_off, iterations, crashes, created_at)
            SELECT {first} + n, 'one', '{execution_state}', 'default', 0, now(), {started},
                p.ids[1 + n % 20], gen_random_uuid(), false, false, 0, 0, now()
            FROM p, generate_series(1, {count}) AS numbers(n), generate_series(1, {executions})"""
    )


if __name__ == "__main__":
    sys.exit(main())
