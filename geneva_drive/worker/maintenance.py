"""Housekeeping in a process that stays: in a thread of each worker, and in the feeder."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from django.db import connections

from geneva_drive.conf import settings
from geneva_drive.execution.heartbeat import Heartbeat
from geneva_drive.housekeeping import CHORES, Chore, Counts, housekeep
from geneva_drive.worker.shutdown import handling_signals

logger = logging.getLogger("geneva_drive.worker")


class Maintenance:
    """Does the chores of housekeeping, each as often as `CHORES` says.

    Parameters
    ----------
    stopping
        Set when the process shuts down.
    moved
        Called when executions were moved, which may now be due.
    """

    def __init__(
        self, using: str, stopping: threading.Event, moved: Callable[[], None] = lambda: None
    ) -> None:
        self.using = using
        self._stopping = stopping
        self._moved = moved
        now = time.monotonic()
        self._next = {chore: now if chore.at_start else now + (chore.every or 0) for chore in CHORES}

    def run(self) -> None:
        """Run until ``stopping`` is set."""
        pause = 0.0
        while not self._stopping.wait(pause):
            self.run_once()
            connections.close_all()  # this thread's own, not needed until the next round
            pause = self.pause()

    def pause(self) -> float:
        """Return the seconds until the next round: half a lease."""
        # Jitter, so that workers that started together do not run it at the same time.
        return max(settings.LEASE.total_seconds() / 2, 0.2) * random.uniform(0.75, 1.25)

    def run_once(self, chores: Iterable[Chore] | None = None) -> Counts:
        """Do some chores, by default those whose time has come. Errors are logged."""
        try:
            counts = housekeep(
                self.using, self._due() if chores is None else chores, stop=self._stopping.is_set
            )
        except Exception:
            logger.exception("Housekeeping failed, retrying in the next round.")
            connections.close_all()
            return Counts()
        if counts.recovered or counts.redispatched or counts.woken or counts.workflows:
            logger.info("Housekeeping: %s", counts.as_dict())
        if counts.recovered or counts.woken or counts.expired:
            self._moved()
        return counts

    def _due(self) -> Iterator[Chore]:
        # One after the other: when one fails, those behind it stay due.
        for chore in CHORES:
            if time.monotonic() >= self._next.get(chore, 0):
                self._next[chore] = time.monotonic() + (chore.every or 0)
                yield chore


class Feeder:
    """Runs no steps: dispatches what is about to be due, expires waits, and does the housekeeping.

    Parameters
    ----------
    poll_interval
        Seconds between two looks for executions that are about to be due.
    drain
        Return after one look.
    """

    def __init__(self, using: str, *, poll_interval: float = 1.0, drain: bool = False) -> None:
        self.using = using
        self.poll_interval = poll_interval
        self.drain = drain
        self.fed = 0
        self._stopping = threading.Event()
        self._heartbeat = Heartbeat(using, "feeder")

    def run(self) -> int:
        """Feed until stopped; return how many executions were dispatched by the polls."""
        maintenance = Maintenance(self.using, self._stopping)
        started = False
        next_round = 0.0
        with handling_signals(self.stop, self._heartbeat.mark_dead):
            while not self._stopping.is_set():
                if not started:
                    started = self._start_heartbeat()
                if time.monotonic() >= next_round:
                    maintenance.run_once()
                    next_round = time.monotonic() + maintenance.pause()
                self.fed += maintenance.run_once(chore for chore in CHORES if chore.by_feeder).fed
                if self.drain:
                    break
                self._stopping.wait(self.poll_interval)
            self._heartbeat.stop()
            connections.close_all()
        return self.fed

    def stop(self) -> None:
        """Return from ``run`` soon. May be called from any thread."""
        self._stopping.set()

    def _start_heartbeat(self) -> bool:
        try:
            self._heartbeat.start()
        except Exception:
            logger.exception("The feeder's heartbeat could not be started, retrying.")
            connections.close_all()
            return False
        return True
