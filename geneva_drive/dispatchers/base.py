"""What carries "this execution is due" to a process that runs it."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage

__all__ = ["Dispatcher"]


class Dispatcher:
    """The base of every dispatcher. What it carries is a hint; the row is the obligation.

    Options from the settings, ``DISPATCHER = (path, {…})``, are keyword arguments of ``__init__``.
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
    #: twice. False where the tables themselves are the queue.
    remembers = True

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        """Carry one execution.

        Parameters
        ----------
        execution_id
            The key of a scheduled execution, and all that may cross the boundary.
        options
            ``queue``, ``priority`` (lower first), ``scheduled_for`` (aware), ``using`` (alias).

        Returns
        -------
        str or None
            The job's id in the system that carries it, if it has one.
        """
        raise NotImplementedError

    def check(self) -> list[CheckMessage]:
        """Return what is wrong with this dispatcher's own configuration, for Django's system checks."""
        return []
