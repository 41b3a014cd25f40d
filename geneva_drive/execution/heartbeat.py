"""This process's row, its heartbeat, and its answer for what it has in hand.

A thread of its own beats every third of the lease: it connects, beats and closes. It begins with the
first step that the process runs, never at import, and begins anew after a fork.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from django.db import connections

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.lifecycle.unit_of_work import in_transaction
from geneva_drive.models.records import Process
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.states import ExecutionState

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


logger = logging.getLogger("geneva_drive.heartbeat")

_BEATS_PER_LEASE = 3


class Heartbeat:
    """One row per process and alias, kept alive by a thread.

    Parameters
    ----------
    using
        Alias of the database that holds the rows.
    kind
        What runs steps here: ``worker``, or a dispatcher's name.
    after_beat
        Called after each beat: the process answers for its own rows. In a thread of its own, since it may
        have to wait for a lock, and a process that waits must not be held for dead.
    """

    def __init__(
        self,
        using: str,
        kind: str,
        *,
        queues: str = "",
        after_beat: Callable[[Heartbeat], object] | None = None,
    ) -> None:
        self.using = using
        self.kind = kind
        self.queues = queues
        self.process_id: UUID = uuid4()
        self._after_beat = after_beat
        self._tracked: set[UUID] = set()
        self._lock = threading.Lock()
        self._last_beat: float | None = None
        self._beating = threading.Lock()
        self._answering: threading.Thread | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Write the row and begin to beat. Raises what the database raises."""
        self._register()
        self._thread = threading.Thread(target=self._beat_until_stopped, name="geneva-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop beating; the row goes, unless an execution in progress still names it."""
        self._stop.set()
        for thread in (self._thread, self._answering):
            if thread is not None and thread is not threading.current_thread():
                thread.join(timeout=settings.LEASE.total_seconds())
        try:
            remove_row(self.using, self.process_id)
        except Exception:
            # Nothing depends on it: a dead row goes with the next housekeeping.
            logger.warning("The row of process %s stays.", self.process_id, exc_info=True)

    def is_alive(self) -> bool:
        """Whether the last beat is younger than the lease: otherwise others may hold us for dead."""
        # By a clock that goes on while the machine is suspended, as the database's does.
        return (
            self._last_beat is not None and clock.ticks() - self._last_beat < settings.LEASE.total_seconds()
        )

    def track(self, token: UUID) -> None:
        with self._lock:
            self._tracked.add(token)

    def untrack(self, token: UUID) -> None:
        with self._lock:
            self._tracked.discard(token)

    def tracked(self) -> frozenset[UUID]:
        with self._lock:
            return frozenset(self._tracked)

    def beat(self) -> None:
        """Beat once, on the calling thread's connection."""
        with self._beating:
            if self._stop.is_set():
                return  # marked dead: it stays so
            # Taken before the statement: a beat that took long to arrive must not count as a late one.
            began = clock.ticks()
            connection = connections[self.using]
            if connection.vendor in clock._EPOCH_SECONDS:
                clock.measure(connection)
            process = Process.objects.using(self.using).filter(pk=self.process_id)
            if process.update(heartbeat_at=self._now()):
                self._last_beat = began
                return
            # Somebody held us for dead and took the row: what it named is not ours any more.
            logger.warning("The row of process %s is gone; it goes on under a new id.", self.process_id)
            self.process_id = uuid4()
            self._register()

    def answer(self) -> None:
        """Answer for what names this process, on the calling thread's connection."""
        if self._after_beat is not None:
            self._after_beat(self)

    def mark_dead(self) -> None:
        """Before a forced exit: what is in hand can be recovered at once, not after the lease."""
        self._stop.set()
        with self._beating:
            expired = clock.local(clock.now(self.using) - settings.LEASE * 2)
            Process.objects.using(self.using).filter(pk=self.process_id).update(heartbeat_at=expired)

    def _register(self) -> None:
        began = clock.ticks()
        now = self._now()
        Process.objects.using(self.using).create(
            id=self.process_id,
            hostname=socket.gethostname()[:255],
            pid=os.getpid(),
            kind=self.kind,
            queues=self.queues,
            started_at=now,
            heartbeat_at=now,
        )
        self._last_beat = began

    def _now(self) -> datetime:
        return clock.local(clock.now(self.using))

    def _beat_until_stopped(self) -> None:
        while not self._stop.wait(settings.LEASE.total_seconds() / _BEATS_PER_LEASE):
            if self._try(self.beat) and not (self._answering and self._answering.is_alive()):
                self._answering = threading.Thread(
                    target=self._try, args=(self.answer,), name="geneva-answer", daemon=True
                )
                self._answering.start()

    def _try(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except Exception:
            logger.exception("A heartbeat of process %s failed; the next one may not.", self.process_id)
            return False
        finally:
            self._close()
        return True

    def _close(self) -> None:
        # A thread's own connection: nobody else would close it, and between beats it is of no use.
        connection: BaseDatabaseWrapper = connections[self.using]
        with contextlib.suppress(Exception):
            connection.close()


def remove_row(using: str, process_id: UUID, *, dead_before: datetime | None = None) -> bool:
    """Delete a process's row, unless an execution in progress names it; return whether it went.

    Parameters
    ----------
    dead_before
        Only if its last beat is older.
    """
    in_hand = StepExecution.objects.using(using).filter(
        process_id=process_id, state=ExecutionState.IN_PROGRESS
    )
    # Looked at beforehand, and not in the statement that deletes: with a subquery in it InnoDB goes through
    # the table, locks the rows of others that leave, too, and ends one of them with a deadlock. In the index's
    # order: an ``exists()`` may go through all executions, hoping for an early find.
    if in_hand.order_by("started_at").values_list("pk").first() is not None:
        return False
    rows = Process.objects.using(using).filter(pk=process_id)
    if dead_before is not None:
        rows = rows.filter(heartbeat_at__lt=dead_before)
    return in_transaction(using, lambda: bool(rows._raw_delete(using)))


_running: dict[str, Heartbeat] = {}
_running_lock = threading.Lock()


def ensure(
    using: str, kind: str, *, after_beat: Callable[[Heartbeat], object] | None = None
) -> Heartbeat | None:
    """Return this process's heartbeat on ``using``, started if need be.

    None inside an atomic block: the row would not be seen by others, and might roll back.
    """
    with _running_lock:
        heartbeat = _running.get(using)
        if heartbeat is None:
            if connections[using].in_atomic_block:
                return None
            heartbeat = Heartbeat(using, kind, after_beat=after_beat)
            heartbeat.start()
            _running[using] = heartbeat
        return heartbeat


def stop_all() -> None:
    """Stop every heartbeat of this process: for a dispatcher's own hook at the end of a process."""
    with _running_lock:
        heartbeats = list(_running.values())
        _running.clear()
    for heartbeat in heartbeats:
        heartbeat.stop()


def _after_fork() -> None:
    # The child has no thread, and its parent's identity is not its own.
    global _running_lock
    _running_lock = threading.Lock()
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
