"""States, outcomes, and the moves between them."""

from __future__ import annotations

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

__all__ = [
    "ACTIVE",
    "ENDED",
    "ExecutionState",
    "MOVES",
    "ONGOING",
    "Outcome",
    "SignalState",
    "UNCONSUMED",
    "WorkflowState",
]


class WorkflowState(TextChoices):
    READY = "ready", _("ready")
    PERFORMING = "performing", _("performing")
    PAUSED = "paused", _("paused")
    FINISHED = "finished", _("finished")
    CANCELED = "canceled", _("canceled")


class ExecutionState(TextChoices):
    SCHEDULED = "scheduled", _("scheduled")
    WAITING = "waiting", _("waiting for a signal")
    IN_PROGRESS = "in_progress", _("in progress")
    COMPLETED = "completed", _("completed")
    FAILED = "failed", _("failed")
    CANCELED = "canceled", _("canceled")
    SKIPPED = "skipped", _("skipped")


class Outcome(TextChoices):
    SUCCESS = "success", _("success")
    CONTINUED = "continued", _("continued")
    REATTEMPTED = "reattempted", _("reattempted")
    SKIPPED = "skipped", _("skipped")
    CANCELED = "canceled", _("canceled")
    FAILED = "failed", _("failed")
    RECOVERED = "recovered", _("recovered")
    WORKFLOW_PAUSED = "workflow_paused", _("workflow paused")


class SignalState(TextChoices):
    PENDING = "pending", _("pending")
    CLAIMED = "claimed", _("claimed")
    CONSUMED = "consumed", _("consumed")


ONGOING = (WorkflowState.READY, WorkflowState.PERFORMING, WorkflowState.PAUSED)
"""Not finished and not canceled: the workflow holds its hero's slot."""

ENDED = (WorkflowState.FINISHED, WorkflowState.CANCELED)

ACTIVE = (ExecutionState.SCHEDULED, ExecutionState.WAITING, ExecutionState.IN_PROGRESS)
"""At most one execution of a workflow is in one of these; a unique constraint ensures it."""

UNCONSUMED = (SignalState.PENDING, SignalState.CLAIMED)
"""A step that waits for such a signal can still receive it."""

_W = WorkflowState

MOVES: dict[WorkflowState, frozenset[WorkflowState]] = {
    # A workflow without a runnable step finishes when it starts; a skip of the last step, too.
    _W.READY: frozenset({_W.PERFORMING, _W.PAUSED, _W.FINISHED, _W.CANCELED}),
    _W.PERFORMING: frozenset({_W.READY, _W.PAUSED, _W.FINISHED, _W.CANCELED}),
    _W.PAUSED: frozenset({_W.READY, _W.FINISHED, _W.CANCELED}),
    _W.FINISHED: frozenset(),
    _W.CANCELED: frozenset(),
}
"""From each state of a workflow, the states that it may move to."""
