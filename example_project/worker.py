"""A real worker process: what a deployment would leave to systemd or a container."""

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
    """The worker ended although nobody asked it to, or did not end well when asked."""


@contextlib.contextmanager
def worker(*options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``geneva_worker`` beside the block; at its end, let it finish the steps in hand.

    Raises
    ------
    Stopped
        Its exit status was not 0.
    """
    command = [sys.executable, str(HERE / "manage.py"), "geneva_worker", *options]
    with LOG.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # A terminal sends Ctrl-C to all of a group: the worker would count that and our own signal as
            # two, and leave at once.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        status = _stop(process)
    if status != 0:
        raise Stopped(f"The worker ended with {status}. What it said: {LOG}")


def _stop(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        # Also when a second Ctrl-C interrupts the waiting. The rows stand; another worker goes on with them.
        if process.poll() is None:
            process.kill()
            process.wait()
