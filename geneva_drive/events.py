"""Django signals about workflows, sent after the transaction has committed.

An exception in a receiver is logged and has no other effect. The sender is the workflow's class. All have the
argument ``workflow``; the others are listed at each signal.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.dispatch import Signal

__all__ = [
    "execution_finalized",
    "precondition_checked",
    "step_performed",
    "workflow_started",
    "workflow_transitioned",
]

#: ``workflow``: a row was created and its first step scheduled.
workflow_started = Signal()
#: ``workflow``, ``before``, ``after``: states, as text. Also sent for operator actions.
workflow_transitioned = Signal()
#: ``workflow``, ``execution``, ``verdict``: "proceed", or why the step's body does not run: "skipped",
#: "canceled", "deferred", "failed", "waiting".
precondition_checked = Signal()
#: ``workflow``, ``execution``, ``seconds``, ``error``: a body has run; the error is None, the exception, or the
#: flow control that ended it.
step_performed = Signal()
#: ``workflow``, ``execution``, ``fenced``: an execution ended; fenced, if another process had taken it over and
#: nothing was written.
execution_finalized = Signal()


class Pending(list[tuple[Signal, dict[str, Any]]]):
    """The events of one transaction, until it has committed."""

    def add(self, signal: Signal, workflow: Any, **arguments: Any) -> None:
        if signal.receivers:
            self.append((signal, {"sender": type(workflow), "workflow": workflow, **arguments}))

    def send(self) -> None:
        """Send them now: for code outside of the transaction."""
        events = list(self)
        self.clear()
        for signal, arguments in events:
            signal.send_robust(**arguments)

    def send_after_commit(self, using: str) -> None:
        if self:
            transaction.on_commit(self.send, using=using, robust=True)
