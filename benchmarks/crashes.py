"""Workers killed at random moments, on PostgreSQL: checks that nothing is lost and nothing runs twice at once.

``python -m benchmarks.crashes [--workflows 500] [--kills 200] [--seed 1]`` starts its own PostgreSQL, runs five-step
workflows with a few workers, repeatedly sends SIGKILL to one of them, and counts at the end. It exits with status 1 if
the effect of a step is missing, a workflow did not finish, or two executions of one workflow were active at the same
time.

``MAX_CRASHES`` is set very high, because the steps do not cause these crashes. Normally a workflow pauses after three
consecutive crashes of a step.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg

from tests.servers.binaries import start_postgresql

DATABASE = "geneva_crashes"
WORKERS, THREADS = 3, 2
SETTINGS = {"LEASE": timedelta(seconds=1), "MAX_CRASHES": 1_000_000}
ACTIVE = "('scheduled', 'waiting', 'in_progress')"


def main() -> int:
    """Run the benchmark on its own server."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crashes", description=__doc__)
    parser.add_argument("--workflows", type=int, default=500)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    server = start_postgresql()
    try:
        url = f"{server.url}{DATABASE}"
        with psycopg.connect(f"{server.url}postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
        return run(url, arguments.workflows, arguments.kills, random.Random(arguments.seed))
    finally:
        server.stop()


def run(url: str, workflows: int, kills: int, chance: random.Random) -> int:
    """Run the workflows, kill workers, and count the results."""
    _set_up(url, workflows)
    sampler = _fork(lambda: _sample(url))
    began = time.monotonic()
    workers = [_fork(_work) for _ in range(WORKERS)]
    killed = 0
    while _unfinished(url):
        if killed < kills:
            time.sleep(chance.uniform(0, 0.25))
            place = chance.randrange(WORKERS)
            os.kill(workers[place], signal.SIGKILL)
            os.waitpid(workers[place], 0)
            workers[place] = _fork(_work)
            killed += 1
        else:
            time.sleep(0.1)
    seconds = time.monotonic() - began
    statuses = [_stop(worker, signal.SIGTERM) for worker in workers]
    doubles = _stop(sampler, signal.SIGTERM)
    return _report(url, workflows, killed, seconds, statuses, doubles)


def _set_up(url: str, workflows: int) -> None:
    os.environ["GENEVA_BENCH_URL"] = url
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connections

    from benchmarks.crashing import Crashing

    settings.GENEVA_DRIVE = SETTINGS
    call_command("migrate", run_syncdb=True, verbosity=0)
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "CREATE TABLE mark (workflow bigint, step text, mark text, pid int DEFAULT pg_backend_pid())"
        )
    for _ in range(workflows):
        Crashing.start()
    # Forked processes must not share a connection.
    connections.close_all()


def _fork(act: Callable[[], int]) -> int:
    """Fork a process, which has everything imported already and so spends most of its time on steps."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        status = act()
    finally:
        os._exit(status)


def _work() -> int:
    import logging

    from geneva_drive.worker import Worker

    logging.disable(logging.CRITICAL)
    Worker(threads=THREADS, poll_interval=0.2).run()
    return 0


def _sample(url: str) -> int:
    """Poll for workflows with two active executions; return 1 if there was one."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopped.append(number))
    found = samples = 0
    with psycopg.connect(url, autocommit=True) as connection:
        while not stopped:
            rows = connection.execute(
                f"""SELECT workflow_id FROM geneva_drive_stepexecution WHERE state IN {ACTIVE}
                    GROUP BY workflow_id HAVING count(*) > 1"""
            ).fetchall()
            found += len(rows)
            samples += 1
            time.sleep(0.01)
        connection.execute("CREATE TABLE IF NOT EXISTS sampled (samples int, found int)")
        connection.execute("INSERT INTO sampled VALUES (%s, %s)", [samples, found])
    return 1 if found else 0


def _stop(pid: int, number: signal.Signals) -> int:
    os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _unfinished(url: str) -> bool:
    sql = "SELECT count(*) FROM geneva_drive_workflow WHERE state NOT IN ('finished', 'paused', 'canceled')"
    return bool(_one(url, sql))


def _one(url: str, sql: str) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(sql).fetchone()
    assert row is not None
    return row[0]


def _report(url: str, workflows: int, killed: int, seconds: float, statuses: list[int], doubles: int) -> int:
    from benchmarks.crashing import STEPS

    wanted = workflows * len(STEPS)
    count = "SELECT count(*) FROM"
    facts = {
        "workflows": workflows,
        "SIGKILLs": killed,
        "seconds": round(seconds, 1),
        "finished": _one(url, f"{count} geneva_drive_workflow WHERE state = 'finished'"),
        "steps expected": wanted,
        "steps whose effect is present": _one(
            url, f"{count} (SELECT DISTINCT workflow, step FROM mark WHERE mark = 'ended') AS m"
        ),
        "steps completed in the tables": _one(
            url, f"{count} geneva_drive_stepexecution WHERE state = 'completed' AND outcome = 'success'"
        ),
        "bodies started": _one(url, f"{count} mark WHERE mark = 'began'"),
        "bodies interrupted": _one(
            url,
            "SELECT (SELECT count(*) FROM mark WHERE mark = 'began')"
            " - (SELECT count(*) FROM mark WHERE mark = 'ended')",
        ),
        "steps whose body completed more than once": _one(
            url,
            f"{count} (SELECT 1 FROM mark WHERE mark = 'ended' GROUP BY workflow, step HAVING count(*) > 1) AS m",
        ),
        "executions recovered": _one(url, f"{count} geneva_drive_stepexecution WHERE outcome = 'recovered'"),
        "executions still active": _one(url, f"{count} geneva_drive_stepexecution WHERE state IN {ACTIVE}"),
        "polls for active executions": _one(url, "SELECT samples FROM sampled"),
        "polls that found two of one workflow": _one(url, "SELECT found FROM sampled"),
        "exit statuses of the workers": statuses,
    }
    for name, value in facts.items():
        print(f"{name:48} {value}")
    good = (
        facts["finished"] == workflows
        and facts["steps whose effect is present"] == wanted
        and facts["steps completed in the tables"] == wanted
        and facts["executions still active"] == 0
        and doubles == 0
        and statuses == [0] * WORKERS
    )
    print("OK: nothing was lost, and nothing ran twice at once" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
