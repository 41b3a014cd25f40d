"""In this process, at once: for scripts and tests."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Any

from geneva_drive import clock
from geneva_drive.dispatchers.base import Dispatcher
from geneva_drive.execution.executor import execute

__all__ = ["Immediate"]

logger = logging.getLogger("geneva_drive.dispatch")

_state = threading.local()


class Immediate(Dispatcher):
    """Run what is due in the thread that committed it. Waits are left scheduled.

    A run that schedules further work does not recurse: what comes while one is running is queued behind
    it. A step's exception is recorded and logged; it neither reaches the caller nor stops what is queued.
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
                try:
                    execute(due, using=using)
                except Exception:
                    logger.exception("Execution %s, or one that followed it, failed.", due)
        finally:
            _state.queue = None
        return None
