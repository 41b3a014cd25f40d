"""What happened to one workflow: its class as it is now, painted with its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from geneva_drive import clock
from geneva_drive.models.records import OperatorAction
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.states import ACTIVE, ONGOING, ExecutionState, Outcome

if TYPE_CHECKING:
    from geneva_drive.models.workflow import Workflow

__all__ = ["STATUSES", "StepLine", "Story", "duration_of", "tell"]

STATUSES = ("done", "skipped", "failed", "canceled", "current", "to come", "gravestone", "not declared")
"""What a step of the class can be to one run."""


@dataclass(frozen=True)
class StepLine:
    """One step of the class, or one that rows name and the class does not.

    Attributes
    ----------
    status
        One of `STATUSES`. "current" is the step of the active execution, or the one pointed at.
    former_name
        The older name that rows of this run have, where the step was renamed since.
    attempts
        Executions of it, oldest first.
    """

    name: str
    status: str
    former_name: str | None = None
    attempts: list[StepExecution] = field(default_factory=list)


@dataclass(frozen=True)
class Story:
    """Steps in the order of the class, attempts and operators' actions in the order of time.

    Attributes
    ----------
    is_cut
        Whether there were earlier attempts or actions than those told.
    """

    workflow: Workflow
    steps: list[StepLine]
    attempts: list[StepExecution]
    actions: list[OperatorAction]
    is_cut: bool = False

    @property
    def active(self) -> StepExecution | None:
        """The execution that is scheduled, waiting or in progress."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.is_active else None


def tell(workflow: Workflow, *, most: int = 200) -> Story:
    """Return the story of a workflow, of its latest ``most`` attempts and actions; two queries."""
    using = workflow._state.db
    rows = StepExecution.objects.using(using).filter(workflow_id=workflow.pk)
    attempts = list(rows.latest_first()[:most])[::-1]
    by_hand = OperatorAction.objects.using(using).filter(workflow_id=workflow.pk)
    actions = list(by_hand.latest_first()[:most])[::-1]
    is_cut = most in (len(attempts), len(actions))
    return Story(workflow, _step_lines(workflow, attempts), attempts, actions, is_cut)


def _step_lines(workflow: Workflow, attempts: list[StepExecution]) -> list[StepLine]:
    steps = type(workflow).steps
    by_step: dict[str, list[StepExecution]] = {}
    former: dict[str, str] = {}
    undeclared: list[str] = []
    for attempt in attempts:
        definition = steps.resolve(attempt.step_name)
        name = definition.name if definition is not None else attempt.step_name
        if definition is None and name not in undeclared:
            undeclared.append(name)
        elif definition is not None and name != attempt.step_name:
            former[name] = attempt.step_name
        by_step.setdefault(name, []).append(attempt)
    pointed = workflow.next_step_name if workflow.state in ONGOING else None
    current = steps.resolve(pointed)
    current_name = current.name if current is not None else pointed
    if current is None and pointed is not None and pointed not in undeclared:
        undeclared.append(pointed)
    lines = [
        StepLine(
            step.name,
            _status(by_step.get(step.name, []), is_current=step.name == current_name, removed=step.removed),
            former.get(step.name),
            by_step.get(step.name, []),
        )
        for step in steps
    ]
    lines += [StepLine(name, "not declared", None, by_step.get(name, [])) for name in undeclared]
    return lines


_BY_STATE = {
    ExecutionState.COMPLETED: "done",
    ExecutionState.SKIPPED: "skipped",
    ExecutionState.FAILED: "failed",
    ExecutionState.CANCELED: "canceled",
}


def _status(attempts: list[StepExecution], *, is_current: bool, removed: bool) -> str:
    last = attempts[-1] if attempts else None
    if removed:
        return "gravestone"
    if is_current:
        return "failed" if last is not None and last.state == ExecutionState.FAILED else "current"
    if last is None:
        return "to come"
    if last.state in ACTIVE or last.outcome in (Outcome.REATTEMPTED, Outcome.CONTINUED):
        return "current"
    return _BY_STATE[ExecutionState(last.state)]


def duration_of(execution: StepExecution, now: datetime | None = None) -> timedelta | None:
    """Return how long a body has run, or ran; None before it began."""
    if execution.started_at is None:
        return None
    until: Any = execution.finished_at
    if until is None:
        until = now or clock.now(execution._state.db)
    return clock.utc(until) - clock.utc(execution.started_at)
