"""This process's row and its heartbeat, which show that it is alive.

A separate thread beats every third of the lease: it connects, beats and closes. It starts with the first
step that the process runs, never at import, and starts again after a fork.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from django.db import connections

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.lifecycle.unit_of_work import in_transaction
from geneva_drive.models.records import Process
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.states import ExecutionState

logger = logging.getLogger("geneva_drive.heartbeat")

_BEATS_PER_LEASE = 3


class Heartbeat:
    """One row per process and alias, kept alive by a thread.

    Parameters
    ----------
    kind
        What runs steps here: ``worker``, or a dispatcher's name.
    after_beat
        Called after each beat, to recover the process's own rows. In a separate thread, since it may have to wait
        for a lock, and a process that waits must not be presumed dead.
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
        self._after_beat_thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Write the row and start to beat. Raises what the database raises."""
        self._register()
        self._thread = threading.Thread(target=self._beat_until_stopped, name="geneva-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop beating, and delete the row unless an execution in progress still names it."""
        self._stop.set()
        for thread in (self._thread, self._after_beat_thread):
            if thread is not None and thread is not threading.current_thread():
                thread.join(timeout=settings.LEASE.total_seconds())
        try:
            remove_row(self.using, self.process_id)
        except Exception:
            # Nothing depends on it: housekeeping deletes the row of a dead process.
            logger.warning("The row of process %s could not be deleted.", self.process_id, exc_info=True)

    def is_alive(self) -> bool:
        """Whether the last beat is younger than the lease: otherwise others may presume this process dead."""
        # By a clock that runs while the machine is suspended, as the database's does.
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
                return  # stopped, or marked dead: it stays so
            # Taken before the statement: a beat that arrived late must not count as a later one.
            began = clock.ticks()
            connection = connections[self.using]
            if connection.vendor in clock._EPOCH_SECONDS:
                clock.measure(connection)
            process = Process.objects.using(self.using).filter(pk=self.process_id)
            if process.update(heartbeat_at=self._now()):
                self._last_beat = began
                return
            # Somebody presumed this process dead and deleted the row: what it named is not ours any more.
            logger.warning(
                "The row of process %s was deleted, since it had been presumed dead. It "
                "continues under a new id.",
                self.process_id,
            )
            self.process_id = uuid4()
            self._register()

    def mark_dead(self) -> None:
        """Before a forced exit: let others recover what this process runs at once, not after the lease."""
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
            if not self._try(self.beat) or self._after_beat is None:
                continue
            if self._after_beat_thread is None or not self._after_beat_thread.is_alive():
                act = partial(self._after_beat, self)
                self._after_beat_thread = threading.Thread(
                    target=self._try, args=(act,), name="geneva-after-beat", daemon=True
                )
                self._after_beat_thread.start()

    def _try(self, act: Callable[[], Any]) -> bool:
        try:
            act()
        except Exception:
            logger.exception(
                "Process %s could not send a heartbeat. It tries again; after LEASE "
                "without one, other processes recover its steps.",
                self.process_id,
            )
            return False
        finally:
            self._close()
        return True

    def _close(self) -> None:
        # A thread's own connection: nobody else would close it, and between beats it is of no use.
        with contextlib.suppress(Exception):
            connections[self.using].close()


def remove_row(using: str, process_id: UUID, *, dead_before: datetime | None = None) -> bool:
    """Delete a process's row, unless an execution in progress names it; return whether it was deleted.

    Parameters
    ----------
    dead_before
        Only if its last beat is older.
    """
    running = StepExecution.objects.using(using).filter(
        process_id=process_id, state=ExecutionState.IN_PROGRESS
    )
    # A query of its own: with a subquery in the DELETE InnoDB scans the table, locks the rows of other processes
    # that leave, too, and ends one of them with a deadlock. In the index's order, since an ``exists()`` may scan
    # all executions, hoping for an early hit.
    if running.order_by("started_at").values_list("pk").first() is not None:
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
    """Return this process's heartbeat on ``using``, and start it if there is none.

    None inside an atomic block: others would not see the row, and it might roll back.
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
    """Stop every heartbeat of this process: for a dispatcher's hook at process exit."""
    with _running_lock:
        heartbeats = list(_running.values())
        _running.clear()
    for heartbeat in heartbeats:
        heartbeat.stop()


def _after_fork() -> None:
    # The child has no heartbeat thread, and must not use its parent's row.
    global _running_lock
    _running_lock = threading.Lock()
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
