"""The base class of dispatchers: what brings an execution that is due to a process that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.core.checks import CheckMessage

CHANNEL = "geneva_drive"
"""PostgreSQL notifies listening workers on this channel."""


class Dispatcher:
    """The base of every dispatcher. A job is a hint only: the row says what has to be done.

    Options from the settings, ``DISPATCHER = (path, {…})``, are keyword arguments of ``__init__``. All threads
    of a process share one instance.

    Parameters
    ----------
    lookahead
        How long before its time a job may be enqueued; the feeder enqueues later executions when their time
        comes near. None: any time ahead. Has no effect where ``supports_delays`` is False, since nothing is
        then enqueued before it is due.
    inline_continuation_for
        How long a job may continue with the next step in the same process, so that no chain of steps occupies
        a process for ever or delays its shutdown. None: until the chain ends. Has no effect with
        ``INLINE_CONTINUATION`` off.
    queues
        The name of the job system's queue for each of ours, where it differs.
    """

    #: Jobs can be delayed.
    supports_delays = False
    #: Jobs can have priorities.
    supports_priorities = False
    #: Jobs can be put on named queues.
    supports_queues = False
    #: Jobs are written to the same database in the same transaction.
    same_transaction = False
    #: The row records that its job was enqueued (``dispatched_at``, ``job_id``), so that it is not enqueued
    #: twice, and enqueued again when it does not arrive. False where the tables themselves are the queue.
    remembers = True

    # On the class too, for subclasses whose __init__ does not call this one.
    _lookahead: timedelta | None = None
    inline_continuation_for: timedelta | None = timedelta(minutes=1)
    queues: Mapping[str, str] = {}

    def __init__(
        self,
        *,
        lookahead: timedelta | None = None,
        inline_continuation_for: timedelta | None = timedelta(minutes=1),
        queues: Mapping[str, str] | None = None,
    ) -> None:
        self._lookahead = lookahead
        self.inline_continuation_for = inline_continuation_for
        self.queues = dict(queues or {})

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        """Enqueue a job that calls ``running.run(execution_id, …)`` in some process, sooner or later.

        Called after the commit that wrote the row, or inside that transaction where ``enqueues_inside()``
        says so, and again when a job did not arrive. An exception is logged and does no harm: the execution
        stays due and is enqueued again.

        Parameters
        ----------
        execution_id
            The key of a scheduled execution. A job carries it and the alias, and nothing else.
        options
            ``queue``, ``priority`` (lower first), ``scheduled_for`` (aware, by the database's clock),
            ``delay`` (seconds until then, zero when it is due), ``using`` (alias).

        Returns
        -------
        str or None
            The job's id in the job system, if it has one; at most 255 characters.
        """
        raise NotImplementedError

    def lookahead(self) -> timedelta | None:
        """Return how long before its time an execution may be enqueued; None for any time."""
        return self._lookahead if self.supports_delays else timedelta(0)

    def enqueues_inside(self, using: str) -> bool:
        """Whether ``enqueue`` is called inside the transaction that writes the row on ``using``."""
        del using
        return self.same_transaction

    def queue_for(self, queue: str) -> str:
        """Return the job system's name for one of our queues."""
        return self.queues.get(queue, queue)

    def check(self) -> list[CheckMessage]:
        """Return what is wrong with this dispatcher's configuration, for Django's system checks.

        It must not connect to a server.
        """
        return []

    def health(self) -> list[str]:
        """Return what is wrong at this moment, one sentence each: an unreachable broker, for example."""
        return []
