"""Shutdown by signals: the first finishes the running steps, the second exits at once."""

from __future__ import annotations

import _thread
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

logger = logging.getLogger("geneva_drive.worker")


@contextlib.contextmanager
def handling_signals(on_first: Callable[[], None], on_second: Callable[[], None]) -> Iterator[None]:
    """Call ``on_first`` at the first SIGTERM or SIGINT; at the second, call ``on_second`` and exit with status 1.

    Only the main thread may set handlers; in other threads nothing is installed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = 0

    def first() -> None:
        on_first()
        logger.info("Shutting down: finishing running steps. A second signal exits at once.")

    def handle(_signal: int, _frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        # In threads of their own: the interrupted one may hold a lock that they need, or be in the middle of a
        # statement on the same connection. ``_thread`` itself starts a thread without taking a lock.
        if seen == 1:
            _thread.start_new_thread(first, ())
            return
        done = _thread.allocate_lock()
        done.acquire()

        def second() -> None:
            try:
                on_second()
                logger.warning("Second signal: exiting at once. Running steps will be recovered.")
            finally:
                done.release()

        _thread.start_new_thread(second, ())
        done.acquire(timeout=2.0)
        os._exit(1)

    before = {each: signal.signal(each, handle) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
