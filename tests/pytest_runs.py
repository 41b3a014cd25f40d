"""The suite's pytest processes: one on each database in each environment, side by side."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests import database_use, report
from tests.environments import ROOT, Environment
from tests.servers.databases import ALIASES, run_directory, url_variable
from tests.servers.find import Server
from tests.servers.login import drop_databases
from tests.summary import Done

__all__ = ["Run", "compile_all", "run_all"]

COMPILED = ("geneva_drive", "tests", "example_project")

RUN_SECONDS = 45 * 60
INTERRUPTED_SECONDS = 20
ENDED_WELL = (0, 5)
"""pytest's exit status; 5 means that no test was chosen."""

_running: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True)
class Run:
    """One pytest process to come."""

    environment: Environment
    database: str
    server: Server | None
    number: int
    with_the_others: bool = True
    """Whether the tests that touch no database run here too."""

    @property
    def name(self) -> str:
        """The stem of this run's databases: no other run has it, also on a server shared with others."""
        return f"geneva_{os.getpid()}_{self.number}"


def compile_all(environments: list[Environment]) -> None:
    """Compile the sources, so that no process that a test starts has to."""
    for one in environments:
        # A file that cannot be compiled is told of by the tests.
        subprocess.run([str(one.python), "-m", "compileall", "-qq", *COMPILED], cwd=ROOT, check=False)


def run_all(runs: list[Run], notes: Path, extra: list[str]) -> list[Done]:
    """Run them, one for each core at a time. Then, one by one, those that have serial tests.

    Interrupted, it interrupts the processes, which drop their databases, and waits for them.
    """
    pool = ThreadPoolExecutor(max_workers=os.cpu_count() or 1)
    try:
        futures = [pool.submit(_run, run, notes, ["-m", "not serial", *extra]) for run in runs]
        done = [future.result() for future in futures]
        for run, before in zip(runs, done, strict=True):
            if before.outcome.serial:
                before.add(_run(run, notes, ["-m", "serial", *extra]))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        _interrupt(list(_running))
        raise
    finally:
        pool.shutdown(wait=True)
    return done


def _run(run: Run, notes: Path, extra: list[str]) -> Done:
    """Run pytest once, keep its output to itself until it has ended, and read what it noted."""
    started = time.monotonic()
    note, output = notes / f"{run.number}.json", notes / f"{run.number}.txt"
    note.unlink(missing_ok=True)
    second = "0" if run.environment.python == Path(sys.executable) else "1"
    variables = {
        **os.environ,
        # Compiled once, not by each of the hundreds of processes that tests start.
        "PYTHONDONTWRITEBYTECODE": "",
        database_use.VARIABLE: "" if run.with_the_others else database_use.WITH_A_DATABASE,
        "GENEVA_TEST_DATABASE": run.database,
        "GENEVA_TEST_NAME": run.name,
        report.VARIABLE: str(note),
        "GENEVA_TEST_SECOND_ENVIRONMENT": second,
        # On PostgreSQL, the second time as projects with short steps have it.
        "GENEVA_TEST_PREPARED": second,
    }
    if run.server is not None:
        variables[url_variable(run.database)] = run.server.url
    command = [
        str(run.environment.python),
        "-m",
        "pytest",
        "-p",
        "tests.report",
        "-q",
        "-ra",
        "--durations=8",
        *extra,
    ]
    status = _wait(command, variables, output)
    version = run.server.version if run.server else run.environment.versions["sqlite"]
    done = Done(str(run.environment), run.database, version, time.monotonic() - started)
    outcome = report.read(note)
    if outcome is not None:
        done.outcome = outcome
    if outcome is None or (status not in ENDED_WELL and not outcome.failed):
        done.outcome.failed += 1
        done.problem = f"pytest broke off: {status}"
    if outcome is None:
        _clean_up_after(run)
    _show(done, output, "serial tests" if "serial" in extra else "")
    return done


def _clean_up_after(run: Run) -> None:
    """Remove what a run that broke off has left."""
    shutil.rmtree(run_directory({"GENEVA_TEST_NAME": run.name}), ignore_errors=True)
    if run.server is not None:
        stem = f"test_{run.name}"
        drop_databases(
            run.server.url, [stem, *(f"{stem}_{alias}" for alias in ALIASES if alias != "default")]
        )


def _interrupt(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        os.killpg(process.pid, signal.SIGINT)
    deadline = time.monotonic() + INTERRUPTED_SECONDS
    for process in processes:
        try:
            process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(command: list[str], variables: dict[str, str], output: Path) -> int | str:
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            cwd=ROOT,
            env=variables,
            # A group of its own, so that what the tests have started can be ended with it.
            start_new_session=True,
        )
    _running.add(process)
    try:
        return process.wait(RUN_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"killed after {RUN_SECONDS} seconds"
    finally:
        if process.returncode is not None:
            _running.discard(process)


def _show(done: Done, output: Path, which: str) -> None:
    heading = f"── {' ── '.join(filter(None, [done.title, which, done.counts]))}, {done.seconds:.0f} s"
    if done.failed:
        heading = f"\n{heading}\n{output.read_text(errors='replace').rstrip()}\n"
    # A good run has nothing to tell beyond its counts.
    print(heading, flush=True)
