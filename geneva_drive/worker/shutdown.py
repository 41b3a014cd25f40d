"""The first signal finishes what is in hand; the second leaves at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["LEFT_AT_ONCE", "handling_signals"]

LEFT_AT_ONCE = 1
"""The exit status after a second signal."""

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

    def handle(_signal: int, _frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            on_first()
            return
        # In a thread of its own: this one may be in the middle of a statement on the same connection.
        last_words = threading.Thread(target=on_second, daemon=True)
        last_words.start()
        last_words.join(timeout=2)
        os._exit(LEFT_AT_ONCE)

    before = {each: signal.signal(each, handle) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
