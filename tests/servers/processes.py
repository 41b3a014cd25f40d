"""A server of our own: a child process with its data in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.servers.probe import PROBES, Found

__all__ = [
    "CannotStart",
    "PrivateServer",
    "free_port",
    "launch",
    "private_directory",
    "run_quietly",
    "user_for",
]

START_SECONDS = 90
STOP_SECONDS = 30


class CannotStart(Exception):
    """The server cannot be had here; the message says why."""


@dataclass
class PrivateServer:
    """A running server that is ours to stop."""

    url: str
    found: Found
    process: subprocess.Popen[bytes]
    directory: Path

    def stop(self) -> None:
        """End the process and remove its data."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        port: int = probe_socket.getsockname()[1]
        return port


def user_for(*names: str) -> str | None:
    """Who runs the server: the first of ``names`` that exists where we are root, else ourselves (None).

    PostgreSQL refuses to run as root, and no server should.
    """
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in (*names, "nobody") if name in known), None)


def private_directory(name: str, user: str | None, parent: Path | None = None) -> Path:
    """A new temporary folder that ``user`` may write to."""
    directory = Path(tempfile.mkdtemp(prefix=f"geneva-{name}-", dir=parent))
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(directory, entry.pw_uid, entry.pw_gid)
    return directory


def run_quietly(command: Sequence[str], log: Path, user: str | None = None) -> None:
    """Run a command to its end. Raises ``CannotStart`` with the end of its output when it fails."""
    with log.open("ab") as output:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            check=False,
            **_identity(user),
        )
    if done.returncode != 0:
        raise CannotStart(f"{Path(command[0]).name} failed: {_last_line(log)}")


def launch(command: Sequence[str], url: str, directory: Path, user: str | None = None) -> PrivateServer:
    """Start a server and wait until it answers at ``url``. Raises ``CannotStart``."""
    address = urlsplit(url)
    assert address.port is not None
    log = directory / "server.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            # A Ctrl-C at the terminal is for the tests, which then stop the server themselves.
            start_new_session=True,
            **_identity(user),
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := PROBES[address.scheme]("127.0.0.1", address.port):
            return PrivateServer(url, found, process, directory)
        time.sleep(0.2)
    reason = _last_line(log)
    process.kill()
    process.wait()
    shutil.rmtree(directory, ignore_errors=True)
    raise CannotStart(f"{Path(command[0]).name} did not start: {reason}")


def _identity(user: str | None) -> dict[str, Any]:
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
