"""In this process, at once: for scripts and tests."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from geneva_drive import clock
from geneva_drive.dispatchers.base import Dispatcher
from geneva_drive.execution.executor import execute

__all__ = ["Immediate"]

_state = threading.local()


class Immediate(Dispatcher):
    """Run what is due in the thread that committed it. Waits are left scheduled.

    A run that schedules further work does not recurse: what comes while one is running is queued behind
    it. A step's exception is recorded, logged by the dispatch, and does not reach the caller.
    """

    supports_queues = True

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        """Run the execution now, unless it is due later."""
        if options["scheduled_for"] > clock.now(options["using"]):
            return None
        queue: deque[tuple[Any, str]] | None = getattr(_state, "queue", None)
        if queue is not None:
            queue.append((execution_id, options["using"]))
            return None
        _state.queue = deque([(execution_id, options["using"])])
        try:
            while _state.queue:
                due, using = _state.queue.popleft()
                execute(due, using=using)
        finally:
            _state.queue = None
        return None
