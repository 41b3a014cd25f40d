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

from tests import parts, report
from tests.environments import ROOT, Environment
from tests.parts import Part
from tests.servers.databases import ALIASES, run_directory, url_variable
from tests.servers.find import Server
from tests.servers.login import drop_databases
from tests.summary import Done

__all__ = ["Run", "compile_all", "run_all"]

COMPILED = ("geneva_drive", "tests", "example_project")

RUN_SECONDS = 45 * 60
BEHIND = 10
"""The niceness of those that do nothing but compute."""
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
    parts: tuple[Part, ...]

    @property
    def waits(self) -> bool:
        """Whether its tests wait for processes most of the time."""
        return Part.PROCESSES in self.parts

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
    """Run them side by side. Then, one by one, those that have serial tests.

    For each core there is one run that computes, and one that waits for processes most of the time: these go
    first wherever both want the core, so that nobody who beats or polls is late.

    Returns one result for each database in each environment. Interrupted, it interrupts the processes, which
    drop their databases, and waits for them.
    """
    cores = os.cpu_count() or 1
    pools = {waits: ThreadPoolExecutor(max_workers=cores) for waits in (True, False)}
    try:
        futures = [pools[run.waits].submit(_run, run, notes, ["-m", "not serial", *extra]) for run in runs]
        done = [future.result() for future in futures]
        for run, before in zip(runs, done, strict=True):
            if files := before.outcome.serial:
                before.add(_run(run, notes, ["-m", "serial", *extra, *files]))
    except BaseException:
        for pool in pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        _interrupt(list(_running))
        raise
    finally:
        for pool in pools.values():
            pool.shutdown(wait=True)
    together: dict[tuple[str, str], Done] = {}
    for one in done:
        if first := together.get((one.environment, one.database)):
            first.add(one)
        else:
            together[one.environment, one.database] = one
    return list(together.values())


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
        parts.VARIABLE: ",".join(run.parts),
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
    status = _wait(command, variables, output, priority=0 if run.waits else BEHIND)
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
    _show(done, output, "serial" if "serial" in extra else " and ".join(run.parts))
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


def _wait(command: list[str], variables: dict[str, str], output: Path, *, priority: int) -> int | str:
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
    if priority:
        os.setpriority(os.PRIO_PROCESS, process.pid, priority)
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
