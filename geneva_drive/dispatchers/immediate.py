"""In this process, at once: for scripts and tests."""

from __future__ import annotations

from typing import Any

from geneva_drive.dispatchers.base import Dispatcher
from geneva_drive.dispatchers.running import run

__all__ = ["Immediate"]


class Immediate(Dispatcher):
    """Run what is due in the thread that committed it. Waits are left scheduled.

    A run that schedules further work does not recurse: what comes while one is running is queued behind
    it. A step's exception is recorded and logged, and does not reach the caller. What has to wait runs
    with the next ``geneva_housekeeping`` after its time, or in a worker.

    Parameters
    ----------
    heartbeat
        Whether the process gets a heartbeat, so that what it leaves behind when it is killed is recovered
        soon. Off, that takes ``STUCK_AFTER``; for test suites, whose database comes and goes.
    """

    supports_queues = True

    def __init__(self, *, heartbeat: bool = True, **options: Any) -> None:
        super().__init__(**{"straight_on_for": None, **options})
        self.heartbeat = heartbeat

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        """Run the execution now, or behind the one that this thread is running."""
        run(execution_id, options["using"], kind="immediate", heartbeat=self.heartbeat)
        return None
