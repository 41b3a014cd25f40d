"""From what happened to what follows. Pure: no row is read or written here.

Everything that ends an execution (a body that returned, flow control, an exception, a crash, a
precondition that hit, an operator's skip) becomes one ``Decision``, and one function applies it
(``lifecycle.applying``). There is no second table from action to transition anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any

from geneva_drive.definition import flow
from geneva_drive.states import ExecutionState, Outcome

__all__ = [
    "CANCELED_MEANWHILE",
    "CANCEL_CONDITION",
    "Decision",
    "ErrorRecord",
    "HERO_MISSING",
    "PASSED_OVER",
    "SUCCESS",
    "Then",
    "decide_crash",
    "decide_error",
    "decide_flow",
]


class Then(Enum):
    """What becomes of the workflow."""

    NEXT = "next"  # on to the next runnable step, or finish
    SAME = "same"  # another attempt at the same step
    PAUSE = "pause"
    CANCEL = "cancel"
    FINISH = "finish"
    NOTHING = "nothing"  # it is not ours to move any more


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """An exception in storable form: see ``lifecycle.errors``."""

    class_name: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Decision:
    """How an execution ends, and what follows.

    ``wait`` belongs to what follows (``Then.SAME``): None means the step's own. ``crashes`` is what
    the next attempt carries on its row. ``error`` and ``notes`` are recorded on the row that ends.
    """

    state: ExecutionState
    outcome: Outcome
    then: Then
    wait: timedelta | None = None
    crashes: int = 0
    rewind: bool = False
    error: ErrorRecord | None = None
    notes: dict[str, Any] = field(default_factory=dict)


SUCCESS = Decision(ExecutionState.COMPLETED, Outcome.SUCCESS, Then.NEXT)
PASSED_OVER = Decision(ExecutionState.SKIPPED, Outcome.SKIPPED, Then.NEXT)
"""A gravestone, a ``skip_if`` that holds, an operator's skip."""
CANCEL_CONDITION = Decision(
    ExecutionState.CANCELED, Outcome.CANCELED, Then.CANCEL, notes={"reason": "a cancel_if condition holds"}
)
HERO_MISSING = Decision(
    ExecutionState.CANCELED, Outcome.CANCELED, Then.CANCEL, notes={"reason": "the hero is missing"}
)
CANCELED_MEANWHILE = Decision(ExecutionState.CANCELED, Outcome.CANCELED, Then.NOTHING)
"""The workflow left ``performing`` while the body ran."""


def decide_flow(control: flow.FlowControl) -> Decision:
    """Decide by the flow control that a step ended itself with."""
    notes = {"reason": control.reason} if control.reason else {}
    match control:
        case flow.Finish():
            return Decision(ExecutionState.COMPLETED, Outcome.SUCCESS, Then.FINISH, notes=notes)
        case flow.Skip():
            return Decision(ExecutionState.SKIPPED, Outcome.SKIPPED, Then.NEXT, notes=notes)
        case flow.Cancel():
            return Decision(ExecutionState.CANCELED, Outcome.CANCELED, Then.CANCEL, notes=notes)
        case flow.Pause():
            return Decision(ExecutionState.CANCELED, Outcome.WORKFLOW_PAUSED, Then.PAUSE, notes=notes)
        case flow.Reattempt():
            return Decision(
                ExecutionState.COMPLETED,
                Outcome.REATTEMPTED,
                Then.SAME,
                wait=control.wait or timedelta(0),
                rewind=control.rewind,
                notes=notes,
            )
    raise TypeError(f"{control!r} is no flow control of a step.")


def decide_error(error: ErrorRecord) -> Decision:
    """Decide by an exception, where no policy says otherwise: record it and pause at that step."""
    return Decision(ExecutionState.FAILED, Outcome.FAILED, Then.PAUSE, error=error)


def decide_crash(action: str, *, error: ErrorRecord, crashes: int, limit: int, counts: bool = True) -> Decision:
    """Decide by a crash: the process died, or a body raised what ends processes.

    Parameters
    ----------
    action
        ``reattempt``, ``pause`` or ``cancel``.
    crashes
        Consecutive crashes of this step before this one.
    limit
        At so many, the workflow pauses whatever the action.
    counts
        Whether this crash is the step's own doing. Not when the body may never have begun.
    """
    crashes += counts
    then = {"reattempt": Then.SAME, "pause": Then.PAUSE, "cancel": Then.CANCEL}[action]
    notes: dict[str, Any] = {"crashes": crashes}
    if then is Then.SAME and crashes >= limit:
        then = Then.PAUSE
        notes["reason"] = f"crashed {crashes} times in a row"
    return Decision(
        ExecutionState.FAILED,
        Outcome.RECOVERED,
        then,
        wait=timedelta(0),
        crashes=crashes,
        error=error,
        notes=notes,
    )
