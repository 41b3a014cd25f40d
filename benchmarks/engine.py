"""The cost of a step on PostgreSQL: statements, commits, and steps per second compared with a bare psycopg loop.

``python -m benchmarks.engine [--workflows 400] [--repeat 3] [--json]`` starts its own PostgreSQL, with default
durability, and removes it. Variants are interleaved, so their ratios are valid even if the machine's speed drifts. Do
not compare figures from different runs.

The server counts statements and commits (``pg_stat_statements``, ``pg_stat_database``) from the start to the end of
the worker, so they include polls, heartbeats and maintenance. "Prepared" variants set ``server_side_binding`` and
``prepare_threshold`` in the connection's ``OPTIONS``; psycopg without Django prepares statements by default.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any
from uuid import uuid4

import psycopg

from benchmarks.comparing import BASELINE, Results, create_database, in_child, parser, print_table
from tests.servers.binaries import start_postgresql

STEPS = 5

PREPARED = {"server_side_binding": True, "prepare_threshold": 5}

# name -> (workflow class, settings, the connection's options). Each is run by one worker with one thread.
VARIANTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "inline, no hero": ("Noop", {}, {}),
    "inline, no hero, prepared": ("Noop", {}, PREPARED),
    "inline, hero": ("NoopForHero", {}, {}),
    "inline, hero, prepared": ("NoopForHero", {}, PREPARED),
    "not inline, no hero": ("Noop", {"INLINE_CONTINUATION": False}, {}),
    "not inline, hero": ("NoopForHero", {"INLINE_CONTINUATION": False}, {}),
    "not inline, hero, prepared": ("NoopForHero", {"INLINE_CONTINUATION": False}, PREPARED),
}


def child(kind: str, workflows: int) -> dict[str, Any]:
    """Start the workflows, then run them in this process, and return the figures."""
    import django

    django.setup()
    from django.db import connection

    from benchmarks.app import workflows as classes
    from benchmarks.app.models import Thing
    from geneva_drive.worker import Worker

    cls = getattr(classes, kind)
    if cls._geneva.may_proceed_without_hero:
        for _ in range(workflows):
            cls.start()
    else:
        cls.start_many(Thing._default_manager.bulk_create([Thing() for _ in range(workflows)]))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
        cursor.execute("CHECKPOINT")
    connection.close()
    before = counts()
    cpu, began = time.process_time(), time.monotonic()
    performed = Worker(drain=True, listen=False).run()
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    time.sleep(0.5)  # the server adds a session's counts when the session ends
    after = counts()
    assert performed == workflows * STEPS, performed
    return {
        "steps_s": performed / seconds,
        "cpu": cpu / seconds,
        **{key: (after[key] - before[key]) / performed for key in after},
    }


def counts() -> dict[str, int]:
    """Return the server's counts, read over a connection to another database, which is not counted."""
    name = os.environ["GENEVA_BENCH_URL"].rsplit("/", 1)[1]
    with psycopg.connect(os.environ["GENEVA_BENCH_ADMIN"], autocommit=True) as connection:
        commits = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = %s", [name]
        ).fetchone()
        calls = connection.execute(
            """SELECT coalesce(sum(calls) FILTER (WHERE query !~* '^(begin|commit|savepoint|release)'), 0),
                      coalesce(sum(calls), 0)
               FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = %s""",
            [name],
        ).fetchone()
        synced = connection.execute("SELECT wal_sync FROM pg_stat_wal").fetchone()
    assert commits is not None
    assert calls is not None
    assert synced is not None
    return {
        "statements": int(calls[0]),
        "round_trips": int(calls[1]),
        "commits": commits[0],
        "syncs": synced[0],
    }


LOCK_WORKFLOW = "SELECT * FROM geneva_drive_workflow WHERE id = %s FOR UPDATE"
LOCK_EXECUTION = "SELECT * FROM geneva_drive_stepexecution WHERE workflow_id = %s AND id = %s FOR UPDATE"
BEGIN_EXECUTION = (
    "UPDATE geneva_drive_stepexecution SET state = 'in_progress', started_at = now(), attempt_token = %s "
    "WHERE id = %s"
)
BEGIN_WORKFLOW = (
    "UPDATE geneva_drive_workflow SET state = 'performing', current_step_name = 'one', started_at = now(), "
    "updated_at = now() WHERE id = %s"
)
HAND_OFF = """
WITH w AS (
    SELECT id, metadata, job_options FROM geneva_drive_workflow
    WHERE id = %(workflow)s AND state = 'performing' AND pause_requested_at IS NULL FOR UPDATE
), d AS (
    UPDATE geneva_drive_stepexecution AS e SET state = 'completed', outcome = 'success', finished_at = now()
    FROM w WHERE e.id = %(execution)s AND e.workflow_id = w.id AND e.state = 'in_progress'
        AND e.attempt_token = %(token)s
    RETURNING e.workflow_id
), u AS (
    UPDATE geneva_drive_workflow AS v
    SET current_step_name = %(step)s, next_step_name = %(step)s, updated_at = now()
    FROM d WHERE v.id = d.workflow_id RETURNING v.id
), i AS (
    INSERT INTO geneva_drive_stepexecution
        (workflow_id, step_name, state, queue, priority, scheduled_for, started_at, attempt_token, handed_off,
         on_hold, iterations, crashes, created_at)
    SELECT u.id, %(step)s, 'in_progress', 'default', 0, now(), now(), %(following)s, true, false, 0, 0, now()
    FROM u RETURNING id
)
SELECT i.id, w.metadata, w.job_options FROM i, w
"""
END_EXECUTION = (
    "UPDATE geneva_drive_stepexecution SET state = 'completed', outcome = 'success', finished_at = now() "
    "WHERE id = %s"
)
END_WORKFLOW = (
    "UPDATE geneva_drive_workflow SET state = 'finished', current_step_name = NULL, next_step_name = NULL, "
    "updated_at = now(), transitioned_at = now() WHERE id = %s"
)


def bare(url: str, workflows: int) -> dict[str, Any]:
    """Measure the baseline: the statements of the variant "inline, no hero" in a loop without anything else."""
    names = ("two", "three", "four", "five")
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT workflow_id, id FROM geneva_drive_stepexecution WHERE state = 'scheduled'"
        ).fetchall()
        connection.commit()
        assert len(rows) == workflows, len(rows)
        cpu, began = time.process_time(), time.monotonic()
        cursor = connection.cursor()
        for workflow, execution in rows:
            token = uuid4()
            current = execution
            cursor.execute(LOCK_WORKFLOW, [workflow]).fetchone()
            cursor.execute(LOCK_EXECUTION, [workflow, current]).fetchone()
            cursor.execute(BEGIN_EXECUTION, [token, current])
            cursor.execute(BEGIN_WORKFLOW, [workflow])
            connection.commit()
            connection.autocommit = True
            for name in names:
                following = uuid4()
                parameters = {
                    "workflow": workflow,
                    "execution": current,
                    "token": token,
                    "following": following,
                    "step": name,
                }
                row = cursor.execute(HAND_OFF, parameters).fetchone()
                assert row is not None
                current, token = row[0], following
            connection.autocommit = False
            cursor.execute(LOCK_WORKFLOW, [workflow]).fetchone()
            cursor.execute(LOCK_EXECUTION, [workflow, current]).fetchone()
            cursor.execute(END_EXECUTION, [current])
            cursor.execute(END_WORKFLOW, [workflow])
            connection.commit()
        seconds = time.monotonic() - began
    steps = workflows * STEPS
    return {"steps_s": steps / seconds, "cpu": (time.process_time() - cpu) / seconds}


def run(workflows: int, repeat: int) -> Results:
    """Run all variants and the baseline, interleaved, each on its own tables."""
    server = start_postgresql(options=("shared_preload_libraries=pg_stat_statements",))
    results: Results = {}
    arguments = ("--workflows", str(workflows))
    try:
        admin = f"{server.url}postgres"
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION pg_stat_statements")
        for round_ in range(repeat):
            for number, (name, (kind, settings, options)) in enumerate(VARIANTS.items()):
                environment = create_database(admin, f"variant_{number}_{round_}", settings, options=options)
                found = in_child("benchmarks.engine", environment, "--child", kind, *arguments)
                results.setdefault(name, []).append(found)
            environment = create_database(admin, f"baseline_{round_}", {})
            _queue(environment, workflows)
            results.setdefault(BASELINE, []).append(bare(environment["GENEVA_BENCH_URL"], workflows))
            print(f"round {round_ + 1} of {repeat} done", file=sys.stderr)
    finally:
        server.stop()
    return results


def _queue(environment: dict[str, str], workflows: int) -> None:
    code = (
        "import django; django.setup()\n"
        "from benchmarks.app.workflows import Noop\n"
        f"[Noop.start() for _ in range({workflows})]"
    )
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--workflows", type=int, default=400, help="Workflows of five steps each. Default: 400."
    )
    arguments = options.parse_args()
    if arguments.child:
        print(json.dumps(child(arguments.child, arguments.workflows)))
        return
    results = run(arguments.workflows, arguments.repeat)
    if arguments.json:
        print(json.dumps(results))
        return
    columns = ("steps_s", "cpu", "statements", "round_trips", "commits", "syncs")
    print_table(results, "steps_s", dict.fromkeys(columns, ".2f"), "per step")


if __name__ == "__main__":
    main()
