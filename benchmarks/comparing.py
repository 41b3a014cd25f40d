"""What the benchmarks that compare variants with a floor share: databases, child processes, a table."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any

import psycopg

__all__ = ["FLOOR", "Results", "create_database", "in_child", "parser", "print_table"]

FLOOR = "bare psycopg"
"""The variant that the others are measured by."""

Results = dict[str, list[dict[str, Any]]]
"""Of each variant, the figures of each round."""


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The options that all of them have."""
    made = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)
    made.add_argument("--repeat", type=int, default=3, help="Rounds; the median is shown. Default: 3.")
    made.add_argument("--json", action="store_true", help="Print every round as JSON.")
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
        Address of a database of the server that is there already.
    settings
        The dict ``GENEVA_DRIVE``; durations are seconds.
    options
        ``OPTIONS`` of the connection.
    variables
        More for the environment.
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
    """Run a module in a process of its own and return what its last line says, which is JSON."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def print_table(results: Results, rate: str, columns: dict[str, str], heading: str) -> None:
    """Print the medians of each variant, and its share of the floor.

    Parameters
    ----------
    rate
        The figure that the share is taken of.
    columns
        Figure to the format of its column, which is twelve characters wide.
    """
    floor = statistics.median(each[rate] for each in results[FLOOR])
    print(f"{heading:34}" + "".join(f"{name:>12}" for name in columns) + f"{'of the floor':>14}")
    for name, rounds in results.items():
        cells = ""
        for column, form in columns.items():
            known = column in rounds[0]
            cells += f"{statistics.median(each[column] for each in rounds):12{form}}" if known else " " * 12
        share = statistics.median(each[rate] for each in rounds) / floor
        print(f"{name:34}{cells}{share:14.0%}")
