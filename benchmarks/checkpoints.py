"""The cost of a checkpoint on PostgreSQL: items per second of a loop, compared with a bare loop of the same UPDATE.

``python -m benchmarks.checkpoints [--items 4000] [--rows 1000000] [--repeat 3] [--no-sync]`` starts its own PostgreSQL
and removes it. The server has default durability; with ``--no-sync`` it does not wait for the disk, which shows the
cost in CPU time. Variants are interleaved, so their ratios are valid even if the machine's speed drifts. Do not compare
figures from different runs.

Finally, one loop reads ``--rows`` rows of a table while the memory of the process is measured.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import psycopg

from benchmarks.comparing import BASELINE, Results, create_database, in_child, parser, print_table
from tests.servers.binaries import start_postgresql

VARIANTS = {
    "each item": "EachItem",
    "every 100 items": "EveryHundred",
    "each row of a queryset": "EachRow",
    "every 100 rows": "EveryHundredRows",
}
UPDATE = (
    "UPDATE geneva_drive_stepexecution SET cursor = %s::jsonb, iterations = %s, iterations_total = %s "
    "WHERE id = %s AND attempt_token = %s AND state = %s"
)


def child(kind: str, items: int) -> dict[str, Any]:
    """Run one loop over this many items or rows, in this process."""
    import django

    django.setup()
    from benchmarks.app import loops
    from benchmarks.app.models import Thing
    from geneva_drive.testing import run_to_end

    if "Row" in kind:
        for start in range(0, items, 10_000):
            numbers = range(start, min(items, start + 10_000))
            Thing._default_manager.bulk_create([Thing(name=str(number)) for number in numbers])
    workflow = getattr(loops, kind).start(metadata=items)
    cpu, began = time.process_time(), time.monotonic()
    run_to_end(workflow)
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    execution = workflow.executions.get()
    assert (workflow.state, execution.iterations) == ("finished", items), (
        workflow.state,
        execution.iterations,
    )
    return {"items_s": items / seconds, "cpu": cpu / seconds, "memory": loops.memory}


def bare(url: str, items: int) -> dict[str, Any]:
    """Measure the baseline: the same UPDATE, with the same values, in a loop without anything else."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT id, '6f2b7c1e-0000-4000-8000-000000000000'::uuid FROM geneva_drive_stepexecution LIMIT 1"
        ).fetchone()
        assert row is not None
        execution, token = row
        connection.execute(
            "UPDATE geneva_drive_stepexecution SET attempt_token = %s, state = 'in_progress'", [token]
        )
        cpu, began = time.process_time(), time.monotonic()
        cursor = connection.cursor()
        for number in range(1, items + 1):
            cursor.execute(UPDATE, [str(number), number, items, execution, token, "in_progress"])
            assert cursor.rowcount == 1
        seconds = time.monotonic() - began
    return {"items_s": items / seconds, "cpu": (time.process_time() - cpu) / seconds}


def run(items: int, rows: int, repeat: int, *, sync: bool = True) -> tuple[Results, list[int]]:
    """Run all variants and the baseline, interleaved, each on its own tables; then the loop over many rows."""
    server = start_postgresql(options=()) if sync else start_postgresql()
    results: Results = {}
    try:
        admin = f"{server.url}postgres"
        for round_ in range(repeat):
            for number, (name, kind) in enumerate(VARIANTS.items()):
                environment = create_database(admin, f"loop_{number}_{round_}", {})
                results.setdefault(name, []).append(_in_child(environment, kind, items))
            environment = create_database(admin, f"loop_baseline_{round_}", {})
            _in_child(environment, "Short", 1)
            results.setdefault(BASELINE, []).append(bare(environment["GENEVA_BENCH_URL"], items))
            print(f"round {round_ + 1} of {repeat} done", file=sys.stderr)
        memory: list[int] = []
        if rows:
            memory = _in_child(create_database(admin, "loop_rows", {}), "EveryHundredRows", rows)["memory"]
    finally:
        server.stop()
    return results, memory


def _in_child(environment: dict[str, str], kind: str, items: int) -> dict[str, Any]:
    return in_child("benchmarks.checkpoints", environment, "--child", kind, "--items", str(items))


def main() -> None:
    """Parse the arguments, run the benchmark and print a table."""
    options = parser(__doc__)
    options.add_argument("--items", type=int, default=4000, help="Items of each loop. Default: 4000.")
    options.add_argument(
        "--rows", type=int, default=1_000_000, help="Rows of the last loop. Default: a million."
    )
    options.add_argument(
        "--no-sync", action="store_true", help="Use a server that does not wait for its disk."
    )
    arguments = options.parse_args()
    if arguments.child:
        print(json.dumps(child(arguments.child, arguments.items)))
        return
    results, memory = run(arguments.items, arguments.rows, arguments.repeat, sync=not arguments.no_sync)
    if arguments.json:
        print(json.dumps({"results": results, "memory": memory}))
        return
    print_table(results, "items_s", {"items_s": ",.0f", "cpu": ".0%"}, "per second")
    if memory:
        print(
            f"{arguments.rows:,} rows: {memory[0]:,} MiB after the first tenth, {memory[-1]:,} MiB at the end"
        )


if __name__ == "__main__":
    main()
