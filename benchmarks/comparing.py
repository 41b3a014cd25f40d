"""Shared by the benchmarks that compare variants with a baseline: databases, child processes, a table."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any

import psycopg

__all__ = ["BASELINE", "Results", "create_database", "in_child", "parser", "print_table"]

BASELINE = "bare psycopg"
"""The variant that the others are compared with."""

Results = dict[str, list[dict[str, Any]]]
"""The figures of each round, by variant."""


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the common options."""
    made = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)
    made.add_argument(
        "--repeat", type=int, default=3, help="Number of rounds; the median is printed. Default: 3."
    )
    made.add_argument("--json", action="store_true", help="Print the figures of every round as JSON.")
    made.add_argument("--child", help=argparse.SUPPRESS)
    return made


def create_database(
    admin: str,
    name: str,
    settings: dict[str, Any],
    *,
    options: dict[str, Any] | None = None,
    settings_module: str = "benchmarks.settings",
    variables: dict[str, str] | None = None,
) -> dict[str, str]:
    """Create a database with all tables; return the environment of the processes that use it.

    Parameters
    ----------
    admin
        URL of an existing database on the server.
    settings
        The dict ``GENEVA_DRIVE``; durations are seconds.
    options
        ``OPTIONS`` of the connection.
    variables
        Additional environment variables.
    """
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    environment = {
        **os.environ,
        **(variables or {}),
        "DJANGO_SETTINGS_MODULE": settings_module,
        "GENEVA_BENCH_URL": admin.removesuffix("postgres") + name,
        "GENEVA_BENCH_ADMIN": admin,
        "GENEVA_BENCH_SETTINGS": json.dumps(settings),
        "GENEVA_BENCH_OPTIONS": json.dumps(options or {}),
    }
    code = (
        "import django; django.setup()\n"
        "from django.core.management import call_command\n"
        "call_command('migrate', run_syncdb=True, verbosity=0)"
    )
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    return environment


def in_child(module: str, environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    """Run a module in a child process, and return its last line of output, which is JSON."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def print_table(results: Results, rate: str, columns: dict[str, str], heading: str) -> None:
    """Print the medians of each variant, and its rate as a share of the baseline's.

    Parameters
    ----------
    rate
        The figure from which the share is computed.
    columns
        The format of each figure's column, which is twelve characters wide.
    """
    baseline = statistics.median(each[rate] for each in results[BASELINE])
    print(f"{heading:34}" + "".join(f"{name:>12}" for name in columns) + f"{'of baseline':>14}")
    for name, rounds in results.items():
        cells = ""
        for column, form in columns.items():
            known = column in rounds[0]
            cells += f"{statistics.median(each[column] for each in rounds):12{form}}" if known else " " * 12
        share = statistics.median(each[rate] for each in rounds) / baseline
        print(f"{name:34}{cells}{share:14.0%}")
