"""The admin's pages with many workflows, on PostgreSQL.

``python -m benchmarks.admin [--workflows 10000 1000000]`` starts its own server. For each number of workflows it
requests each page three times, and prints the number of queries, the shortest time, and the ratio of the times for the
largest and the smallest number.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from tests.servers.binaries import start_postgresql

Page = tuple[str, Callable[[], Any]]
Measured = dict[str, tuple[int, float]]


def main() -> int:
    """Start a server, and measure each number of workflows in a child process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.admin", description=__doc__)
    parser.add_argument("--workflows", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(json.dumps(measure(arguments.child)))
        return 0
    server = start_postgresql()
    try:
        found = {count: _in_a_child(server.url, count) for count in arguments.workflows}
    finally:
        server.stop()
    few, many = arguments.workflows[0], arguments.workflows[-1]
    print(f"{'page':44}" + "".join(f"{count:>22,}" for count in found) + f"{'ratio':>10}")
    for name in found[few]:
        cells = [f"{found[count][name][0]:>6} q {found[count][name][1] * 1000:>10.0f} ms" for count in found]
        ratio = found[many][name][1] / found[few][name][1]
        print(f"{name:44}" + "".join(f"{cell:>22}" for cell in cells) + f"{ratio:>10.1f}")
    return 0


def _in_a_child(address: str, count: int) -> Measured:
    name = f"geneva_bench_admin_{count}"
    with psycopg.connect(f"{address}postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    variables = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "benchmarks.admin_settings",
        "GENEVA_BENCH_URL": f"{address}{name}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.admin", "--child", str(count)],
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    measured: Measured = json.loads(done.stdout.splitlines()[-1])
    return measured


def measure(count: int) -> Measured:
    """Fill the database, and request each page."""
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    _declare()
    call_command("migrate", verbosity=0)
    started = time.perf_counter()
    _fill(count)
    print(f"{count:,} workflows written in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    found: Measured = {}
    for name, ask in _pages(count):
        times = []
        for _ in range(3):
            with CaptureQueriesContext(connection) as captured:
                started = time.perf_counter()
                response = ask()
                times.append(time.perf_counter() - started)
            assert response.status_code == 200, (name, response.status_code)
        found[name] = (len(captured), min(times))
        print(f"{name}: {len(captured)} queries, {min(times) * 1000:.0f} ms", file=sys.stderr)
    return found


def _pages(count: int) -> Iterator[Page]:
    from django.contrib.auth.models import User
    from django.test import Client
    from django.urls import reverse

    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    rows = reverse("admin:geneva_drive_workflow_changelist")

    def page(address: str) -> Callable[[], Any]:
        return lambda: client.get(address)

    yield "list", page(rows)
    yield "list, last page", page(f"{rows}?p=100")
    for query in (
        "state=paused",
        "state=finished",
        "type=bench.Job&state=ready",
        "type=bench.Job&step=third",
        "hero=auth.user:4711",
        "hero=4711",
        "error=builtins.KeyError",
        "error=builtins.TimeoutError",
        "queue=slow",
        "overdue=any",
        "overdue=day",
        "waiting=any",
        "waiting=long",
        "undeclared=yes",
        "created=day",
        "moved=day",
        "q=4711",
        "q=auth.user:4711",
        "q=auth.user",
        "q=nothing+like+it",
    ):
        yield f"list, {query}", page(f"{rows}?{query}")
    yield "workflow", page(reverse("admin:geneva_drive_workflow_change", args=[count // 2]))
    yield "overview", page(reverse("admin:geneva_drive_overview"))
    yield "removed steps", page(reverse("admin:geneva_drive_removed_steps"))

    def count_for(action: str, query: str) -> Callable[[], Any]:
        data = {"action": action, "select_across": "1", "_selected_action": "1"}
        return lambda: client.post(f"{rows}?{query}", data)

    for name, query in (("paused", "state=paused"), ("ready", "type=bench.Job&state=ready"), ("all", "")):
        yield f"confirming an action on all: {name}", count_for("cancel", query)
    yield "choosing a step for all paused", count_for("resume_at", "type=bench.Job&state=paused")


_KINDS = """
    CREATE TEMPORARY TABLE kinds AS SELECT n, CASE
        WHEN n % 1000 < 800 THEN 'finished' WHEN n % 1000 < 850 THEN 'canceled' WHEN n % 1000 < 950 THEN 'later'
        WHEN n % 1000 < 980 THEN 'waiting' WHEN n % 1000 < 995 THEN 'failed' ELSE 'overdue' END AS kind
    FROM generate_series(1, %(count)s) AS n
"""
_WORKFLOWS = """
    INSERT INTO geneva_drive_workflow (id, type, hero_type_id, hero_id, state, next_step_name, allow_multiple,
        created_at, updated_at, transitioned_at)
    SELECT n, 'bench.Job', %(hero)s, n,
        CASE kind WHEN 'failed' THEN 'paused' WHEN 'finished' THEN kind WHEN 'canceled' THEN kind ELSE 'ready' END,
        CASE WHEN kind IN ('finished', 'canceled') THEN NULL WHEN n %% 50000 = 900 THEN 'third'
             WHEN n %% 100000 = 901 THEN 'gone' ELSE 'second' END,
        FALSE, now() - (%(count)s - n) * interval '30 days' / %(count)s, now(),
        CASE WHEN kind IN ('finished', 'canceled', 'failed')
             THEN now() - (%(count)s - n) * interval '29 days' / %(count)s END
    FROM kinds
"""
_EXECUTIONS = """
    INSERT INTO geneva_drive_stepexecution (workflow_id, step_name, state, outcome, queue, scheduled_for, created_at,
        started_at, finished_at, error_class, error_message, waiting_since)
    SELECT n, 'first', 'completed', 'success', 'default', now() - interval '1 day', now() - interval '1 day',
        now() - interval '1 day', now() - interval '1 day', NULL, NULL, NULL::timestamptz FROM kinds
    UNION ALL
    SELECT n, CASE WHEN n %% 50000 = 900 THEN 'third' WHEN n %% 100000 = 901 THEN 'gone' ELSE 'second' END,
        CASE kind WHEN 'failed' THEN kind WHEN 'waiting' THEN 'waiting' ELSE 'scheduled' END,
        CASE kind WHEN 'failed' THEN kind END, CASE WHEN n %% 5000 = 900 THEN 'slow' ELSE 'default' END,
        CASE kind WHEN 'later' THEN now() + interval '30 days' ELSE now() - interval '1 hour' END, now(),
        CASE kind WHEN 'failed' THEN now() END, CASE kind WHEN 'failed' THEN now() END,
        CASE WHEN kind = 'failed' THEN CASE WHEN n %% 20000 = 981 THEN 'builtins.KeyError'
             ELSE 'builtins.TimeoutError' END END,
        CASE kind WHEN 'failed' THEN 'no answer' END,
        CASE WHEN kind = 'waiting' THEN now() - CASE WHEN n %% 20000 = 951 THEN interval '9 days'
             ELSE interval '1 hour' END END
    FROM kinds WHERE kind NOT IN ('finished', 'canceled')
"""


def _fill(count: int) -> None:
    from django.contrib.auth.models import User
    from django.contrib.contenttypes.models import ContentType
    from django.db import connection

    values = {"count": count, "hero": ContentType.objects.get_for_model(User).pk}
    with connection.cursor() as cursor:
        for statement in (_KINDS, _WORKFLOWS, _EXECUTIONS):
            cursor.execute(statement.replace("% 1000 ", "%% 1000 "), values)
        cursor.execute("SELECT setval(pg_get_serial_sequence('geneva_drive_workflow', 'id'), %s)", [count])
        for table in ("workflow", "stepexecution"):
            cursor.execute(f"VACUUM ANALYZE geneva_drive_{table}")


def _declare() -> None:
    """Declare the workflow class of the rows."""
    from geneva_drive import Workflow, removed_step, step

    class Job(Workflow):
        @step
        def first(self) -> None: ...

        @step
        def second(self) -> None: ...

        buried = removed_step()

        @step
        def third(self) -> None: ...

        class Meta:
            app_label = "bench"


if __name__ == "__main__":
    sys.exit(main())
