"""What carries "this execution is due" to a process that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.core.checks import CheckMessage


class Dispatcher:
    """The base of every dispatcher. What it carries is a hint; the row is the obligation.

    Options from the settings, ``DISPATCHER = (path, {…})``, are keyword arguments of ``__init__``. One
    instance serves all threads of a process.

    Parameters
    ----------
    lookahead
        How long before its time a job may be handed over; what is due later is handed over when its time
        comes near, by the feeder. None: any time ahead. Means nothing where ``supports_delays`` is False,
        since nothing is then handed over before it is due.
    inline_continuation_for
        After so long a chain of steps goes through the dispatcher again, so that no chain keeps a place, or
        a process that shall end, for ever. None: until it ends. Means nothing with ``INLINE_CONTINUATION`` off.
    queues
        The carrying system's queue for each of ours, where it is not the same name.
    """

    #: Jobs can be told to run later.
    supports_delays = False
    #: Jobs can be told to run before others.
    supports_priorities = False
    #: Jobs can be put on named queues.
    supports_queues = False
    #: The job is written to the same database in the same transaction.
    same_transaction = False
    #: A job that was enqueued is noted on the row (``dispatched_at``, ``job_id``), so that it is not sent
    #: twice, and sent again when it does not come. False where the tables themselves are the queue.
    remembers = True

    # On the class too: a dispatcher whose own __init__ does not call this one must still carry.
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
        """Carry one execution: sooner or later ``running.run(execution_id, …)`` is called with it.

        Called after the commit that wrote the row, or inside of that transaction where
        ``enqueues_inside()`` says so, and again when a job did not come. What it raises is logged and costs
        nothing: the row stays due and is sent again.

        Parameters
        ----------
        execution_id
            The key of a scheduled execution, and with its alias all that may cross the boundary.
        options
            ``queue``, ``priority`` (lower first), ``scheduled_for`` (aware, by the database's clock),
            ``delay`` (seconds until then, zero when it is due), ``using`` (alias).

        Returns
        -------
        str or None
            The job's id in the system that carries it, if it has one; at most 255 characters.
        """
        raise NotImplementedError

    def lookahead(self) -> timedelta | None:
        """Return how long before its time an execution may be handed over; None for any time."""
        return self._lookahead if self.supports_delays else timedelta(0)

    def enqueues_inside(self, using: str) -> bool:
        """Whether ``enqueue`` is called inside of the transaction that writes the row on ``using``."""
        del using
        return self.same_transaction

    def queue_for(self, queue: str) -> str:
        """Return the carrying system's name for one of our queues."""
        return self.queues.get(queue, queue)

    def check(self) -> list[CheckMessage]:
        """Return what is wrong with this dispatcher's own configuration, for Django's system checks.

        It talks to no server.
        """
        return []

    def health(self) -> list[str]:
        """Return what is wrong at this moment, one sentence each: a broker out of reach, for example."""
        return []
