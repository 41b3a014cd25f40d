"""Housekeeping as part of a process that stays: a worker's thread, or a feeder's only duty."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from django.db import connections

from geneva_drive.conf import settings
from geneva_drive.execution.heartbeat import Heartbeat
from geneva_drive.execution.signal_timeouts import expire_due
from geneva_drive.housekeeping import Counts, clean_up, feed, recover, redispatch
from geneva_drive.housekeeping.waiting_steps import wake_waiting
from geneva_drive.worker.shutdown import handling_signals

logger = logging.getLogger("geneva_drive.worker")

_CLEAN_UP_EVERY = 3600.0  # seconds
_LOOK_AT_WAITING_EVERY = 300.0


class Maintenance:
    """Keeps house twice in each lease, until it is stopped.

    Parameters
    ----------
    recovered
        Called when something was moved, which may be due at once.
    """

    def __init__(
        self, using: str, stopping: threading.Event, recovered: Callable[[], None] = lambda: None
    ) -> None:
        self.using = using
        self._stopping = stopping
        self._recovered = recovered
        self._cleaned = time.monotonic()
        # At once when it starts: a deploy is what changes for those that are waiting.
        self._looked: float | None = None

    def run(self) -> None:
        """Return when ``stopping`` is set."""
        # At once when it starts: what a predecessor left behind should not wait.
        pause = 0.0
        while not self._stopping.wait(pause):
            self.keep()
            pause = self.pause()

    def pause(self) -> float:
        """Return seconds until the next round. Those that started together shall not keep house together."""
        return max(settings.LEASE.total_seconds() / 2, 0.2) * random.uniform(0.75, 1.25)

    def keep(self) -> None:
        """Keep house once. What goes wrong is logged."""
        try:
            counts = recover(self.using)
            feed(self.using, counts)
            redispatch(self.using, counts)
            counts.expired += expire_due(self.using)
            if self._looked is None or time.monotonic() - self._looked > _LOOK_AT_WAITING_EVERY:
                self._looked = time.monotonic()
                counts.woken += wake_waiting(self.using)
            if time.monotonic() - self._cleaned > _CLEAN_UP_EVERY:
                self._cleaned = time.monotonic()
                clean_up(self.using, counts, stop=self._stopping.is_set)
            if counts.recovered or counts.redispatched or counts.woken or counts.workflows:
                logger.info("Housekeeping: %s", counts.as_dict())
            if counts.recovered or counts.woken or counts.expired:
                self._recovered()
        except Exception:
            logger.exception("Housekeeping failed; the next round may not.")
        finally:
            # The thread's own connection, of no use until the next round.
            connections.close_all()


class Feeder:
    """Runs no step: dispatches what comes near its time, misses late signals, and keeps house.

    Parameters
    ----------
    poll_interval
        Seconds between two looks at what comes near its time.
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
        """Feed until stopped; return how many executions were dispatched near their time."""
        keeper = Maintenance(self.using, self._stopping)
        with handling_signals(self.stop, self._heartbeat.mark_dead):
            started = False
            keep_at = 0.0
            while not self._stopping.is_set():
                if not started:
                    started = self._try(self._heartbeat.start)
                if time.monotonic() >= keep_at:
                    keeper.keep()
                    keep_at = time.monotonic() + keeper.pause()
                self._try(self._feed)
                if self.drain:
                    break
                self._stopping.wait(self.poll_interval)
            self._heartbeat.stop()
            connections.close_all()
        return self.fed

    def stop(self) -> None:
        """Return from ``run`` soon. May be called from any thread."""
        self._stopping.set()

    def _feed(self) -> None:
        counts = Counts()
        feed(self.using, counts)
        expire_due(self.using)
        self.fed += counts.fed

    def _try(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except Exception:
            logger.exception("The feeder's round failed; the next one may not.")
            connections.close_all()
            return False
        return True
