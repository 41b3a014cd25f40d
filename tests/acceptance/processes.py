"""Worker processes, started and controlled by tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.warm_processes import start

__all__ = ["Child", "Launcher", "until"]

_PATIENCE = 90.0


def until(condition: Callable[[], Any], what: str, *, child: Child | None = None) -> Any:
    """Wait until ``condition()`` is true and return its result; fail after a long time."""
    give_up = time.monotonic() + _PATIENCE
    while not (found := condition()):
        if child is not None and child.process.poll() is not None:
            if found := condition():
                return found
            raise AssertionError(f"the process left before {what}:\n{child.output()}")
        if time.monotonic() > give_up:
            output = child.output() if child is not None else ""
            raise AssertionError(f"waited too long until {what}\n{output}")
        time.sleep(0.02)
    return found


class Child:
    """A process started by a test, with its output."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as stream:
            self.process = start(command, env=environment, stdout=stream, stderr=stream)

    @property
    def pid(self) -> int:
        return self.process.pid

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def has_said(self, words: str) -> None:
        """Wait until it handles signals: before that, a signal just kills it."""
        until(lambda: words in self.output(), f"it says {words!r}", child=self)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        """Send SIGSTOP and wait until it has stopped, since it may run for another moment."""
        self.signal(signal.SIGSTOP)
        until(self.process.has_stopped, "it has stopped", child=self)

    def kill(self) -> None:
        """Send SIGKILL and wait until it has ended."""
        self.process.kill()
        self.process.wait()

    def wait(self) -> int:
        """Wait until it exits; return its status."""
        try:
            return self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the process did not leave:\n{self.output()}") from None

    def finish(self) -> None:
        """Wait until it exits, and assert that its status is 0."""
        assert self.wait() == 0, self.output()


class Launcher:
    """Starts processes on the test's databases, and ends the remaining ones."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self._environment = {**environment, "DJANGO_SETTINGS_MODULE": "tests.acceptance.settings"}
        self._folder = folder
        self._children: list[Child] = []

    def command(
        self,
        *arguments: str,
        settings: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
    ) -> Child:
        """Start a management command; durations in ``settings`` are seconds."""
        variables = {**self._environment, **(environment or {})}
        if settings is not None:
            variables["GENEVA_TEST_SETTINGS"] = json.dumps(settings)
        command = [sys.executable, "-m", "django", *arguments]
        child = Child(command, variables, self._folder / f"child-{len(self._children)}.log")
        self._children.append(child)
        return child

    def worker(
        self,
        *arguments: str,
        settings: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
    ) -> Child:
        return self.command(
            "geneva_worker", *arguments, settings={"LEASE": 2, **(settings or {})}, environment=environment
        )

    def python(self, program: str, *, environment: dict[str, str] | None = None) -> Child:
        """Start a Python program that has Django set up."""
        code = f"import django; django.setup()\n{program}"
        child = Child(
            [sys.executable, "-c", code],
            {**self._environment, **(environment or {})},
            self._folder / f"child-{len(self._children)}.log",
        )
        self._children.append(child)
        return child

    def close(self) -> None:
        for child in self._children:
            if child.process.poll() is None:
                os.kill(child.pid, signal.SIGKILL)
            child.process.wait()
