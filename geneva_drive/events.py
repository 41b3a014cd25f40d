"""Django signals that tell what happens, sent after the transaction that made it so.

Receivers are called robustly: one that raises is logged and breaks nothing. The sender is the
workflow's class. All carry ``workflow``; see each for the rest.
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
#: ``workflow``, ``before``, ``after``: states, as text. Also sent by the operators' controls.
workflow_transitioned = Signal()
#: ``workflow``, ``execution``, ``verdict``: "proceed", or what kept the step's body from running:
#: "skipped", "canceled", "deferred", "failed", "waiting".
precondition_checked = Signal()
#: ``workflow``, ``execution``, ``seconds``, ``error``: a body was run; the error is None, the
#: exception, or the flow control that it ended with.
step_performed = Signal()
#: ``workflow``, ``execution``, ``fenced``: an execution ended, or (fenced) its end came too late and
#: nothing was written.
execution_finalized = Signal()


class Pending:
    """Events of one transaction, kept until it is over."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[tuple[Signal, dict[str, Any]]] = []

    def add(self, signal: Signal, workflow: Any, **arguments: Any) -> None:
        if signal.receivers:
            self._kept.append((signal, {"sender": type(workflow), "workflow": workflow, **arguments}))

    def send(self) -> None:
        """Send what was kept, now: for code that stands outside of its own transaction."""
        kept, self._kept = self._kept, []
        for signal, arguments in kept:
            signal.send_robust(**arguments)

    def send_after_commit(self, using: str) -> None:
        if self._kept:
            transaction.on_commit(self.send, using=using, robust=True)

    def clear(self) -> None:
        """Forget them: their transaction was rolled back and is tried again."""
        self._kept.clear()

    def extend(self, other: Pending) -> None:
        """Take over what another one kept."""
        self._kept += other._kept
        other.clear()
