"""The same workflow with each dispatcher: latency and steps per second, on PostgreSQL and Redis.

``python -m benchmarks.dispatchers [--workflows 200] [--starts 100] [--repeat 3] [--json]`` starts its own PostgreSQL,
with default durability, and its own Redis, and removes them. In every variant one process runs the steps. Variants are
interleaved, so their ratios are valid even if the machine's speed drifts. Do not compare figures from different runs.

Latency is the time from a start on an idle system to the start of the first step, as recorded in the rows by the
database's clock. Steps per second are measured with a queue that was full before the process started, from the start
of the first step to the end of the last.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.comparing import Results, create_database, in_child, parser
from tests.servers.binaries import start_postgresql
from tests.servers.brokers import start_redis

STEPS = 5

WORKER = ["-m", "django", "geneva_worker", "-v", "0"]
DB_WORKER = ["-m", "django", "db_worker", "--queue-name", "*", "--no-startup-delay", "--no-reload", "-v", "0"]
CELERY = [
    "-m", "celery", "-A", "benchmarks.celery_app", "worker", "--concurrency", "1", "-l", "ERROR",
    "--without-gossip", "--without-mingle", "--without-heartbeat", "-Q", "benchmarks",
]  # fmt: skip
DISPATCHERS = "geneva_drive.dispatchers"

# name -> (dispatcher, the command that runs steps)
VARIANTS: dict[str, tuple[str, list[str]]] = {
    "Worker": (f"{DISPATCHERS}.Worker", WORKER),
    "Worker, polls every second": (f"{DISPATCHERS}.Worker", [*WORKER, "--no-listen"]),
    "DjangoTasks, polls every second": (f"{DISPATCHERS}.DjangoTasks", DB_WORKER),
    "DjangoTasks, polls every 50 ms": (f"{DISPATCHERS}.DjangoTasks", [*DB_WORKER, "--interval", "0.05"]),
    "Celery with Redis": (f"{DISPATCHERS}.Celery", CELERY),
}


def child(command: list[str], workflows: int, starts: int) -> dict[str, Any]:
    """Run one variant on empty tables, and return the figures from its rows."""
    import django

    django.setup()
    from django.db.models import Max, Min

    from benchmarks.app.workflows import Noop
    from geneva_drive.models import StepExecution

    for _ in range(workflows):
        Noop.start()
    with _running(command):
        _wait_until_done()
        done = StepExecution.objects.aggregate(begin=Min("started_at"), end=Max("finished_at"))
        seconds = (done["end"] - done["begin"]).total_seconds()
        latencies = []
        for _ in range(starts):
            # Random, so that starts do not synchronize with a poll interval.
            time.sleep(random.uniform(0.05, 0.15))
            workflow = Noop.start()
            _wait_until_done()
            first = StepExecution.objects.filter(workflow_id=workflow.pk).earliest("pk")
            assert first.started_at is not None
            latencies.append((first.started_at - first.created_at).total_seconds() * 1000)
    return {"steps_s": workflows * STEPS / seconds, "latencies": latencies}


def _wait_until_done() -> None:
    from geneva_drive.models import Workflow

    while Workflow.objects.ongoing().exists():
        time.sleep(0.01)


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def run(workflows: int, starts: int, repeat: int) -> Results:
    """Run all variants, interleaved, with and without inline continuation."""
    results: Results = {}
    with contextlib.ExitStack() as stack:
        postgresql, redis = start_postgresql(options=()), start_redis()
        stack.callback(postgresql.stop)
        stack.callback(redis.stop)
        for round_ in range(repeat):
            for number, (name, (dispatcher, command)) in enumerate(VARIANTS.items()):
                for inline_continuation in (True, False):
                    environment = create_database(
                        f"{postgresql.url}postgres",
                        f"b{round_}_{number}_{int(inline_continuation)}",
                        {"DISPATCHER": dispatcher, "INLINE_CONTINUATION": inline_continuation},
                        settings_module="benchmarks.dispatcher_settings",
                        variables={
                            "GENEVA_BENCH_REDIS": redis.url,
                            "C_FORCE_ROOT": "1",
                            "PYTHONPATH": os.pathsep.join(
                                filter(
                                    None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")]
                                )
                            ),
                        },
                    )
                    # The latency of a start is the same with and without inline continuation.
                    wanted = [
                        "--workflows",
                        str(workflows),
                        "--starts",
                        str(starts if inline_continuation else 0),
                    ]
                    figures = in_child(
                        "benchmarks.dispatchers", environment, "--child", json.dumps(command), *wanted
                    )
                    key = name if inline_continuation else f"{name}, not inline"
                    results.setdefault(key, []).append(figures)
            print(f"round {round_ + 1} of {repeat} done", file=sys.stderr)
    return results


def main() -> None:
    """Parse the arguments, run the benchmark and print a table."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--workflows", type=int, default=200, help="Workflows of five steps each. Default: 200."
    )
    arguments.add_argument(
        "--starts", type=int, default=100, help="Single starts, for the latency. Default: 100."
    )
    options = arguments.parse_args()
    if options.child:
        print(json.dumps(child(json.loads(options.child), options.workflows, options.starts)))
        return
    results = run(options.workflows, options.starts, options.repeat)
    if options.json:
        print(json.dumps(results))
        return
    print(f"{'':50}{'steps/s':>10}{'p50 ms':>10}{'p99 ms':>10}")
    for name, rounds in results.items():
        line = f"{name:50}{statistics.median(each['steps_s'] for each in rounds):10.0f}"
        latencies = sorted(latency for each in rounds for latency in each["latencies"])
        if latencies:
            p99 = latencies[min(len(latencies) - 1, int(len(latencies) * 0.99))]
            line += f"{statistics.median(latencies):10.1f}{p99:10.1f}"
        print(line)


if __name__ == "__main__":
    main()
