"""The first signal finishes what is in hand; the second leaves at once."""

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

LEFT_AT_ONCE = 1
"""The exit status after a second signal."""

_LAST_WORDS = 2.0
"""Seconds that the second signal gives the process to tell that it is dead."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def handling_signals(on_first: Callable[[], None], on_second: Callable[[], None]) -> Iterator[None]:
    """Call ``on_first`` at the first SIGTERM or SIGINT; at the second, ``on_second`` and leave.

    Only a process's main thread may set handlers; elsewhere nothing is installed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = 0

    def first() -> None:
        on_first()
        logger.info("Told to stop: steps in hand are finished. A second signal leaves at once.")

    def handle(_signal: int, _frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        # In threads of their own: the one that was interrupted may hold the very lock that they need, or be
        # in the middle of a statement on the same connection. Started the low way, which takes no lock.
        if seen == 1:
            _thread.start_new_thread(first, ())
            return
        said = _thread.allocate_lock()
        said.acquire()

        def last_words() -> None:
            try:
                on_second()
                logger.warning("Told to stop again: leaving at once. Steps in hand will be begun anew.")
            finally:
                said.release()

        _thread.start_new_thread(last_words, ())
        said.acquire(timeout=_LAST_WORDS)
        os._exit(LEFT_AT_ONCE)

    before = {each: signal.signal(each, handle) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
