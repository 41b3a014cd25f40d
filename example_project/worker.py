"""Run a real worker process, as systemd or a container would do in production."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LOG", "Stopped", "worker"]

HERE = Path(__file__).resolve().parent
LOG = HERE / "worker.log"
SECONDS_TO_STOP = 30


class Stopped(Exception):
    """The worker exited by itself, or did not exit cleanly when it was asked to."""


@contextlib.contextmanager
def worker(*options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``geneva_worker`` during the block. At the end, let it finish its running steps.

    Raises
    ------
    Stopped
        The worker failed, or did not stop in time.
    """
    command = [sys.executable, str(HERE / "manage.py"), "geneva_worker", *options]
    with LOG.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # On Ctrl-C, a terminal signals the whole process group. Together with our own SIGTERM the worker would
            # receive two signals, and exit at once.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        status = _stop(process)
    # SIGTERM ends a worker that has not started yet, and that has not run anything.
    if status not in (0, -signal.SIGTERM):
        raise Stopped(f"The worker exited with status {status}. Its output is in {LOG}")


def _stop(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        # Also after a second Ctrl-C. No work is lost: another worker recovers the steps.
        if process.poll() is None:
            process.kill()
            process.wait()
