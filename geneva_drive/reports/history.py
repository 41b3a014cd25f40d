"""What a workflow has done: its chains of executions, the progress of loops, and its timeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from geneva_drive import clock
from geneva_drive.models.records import OperatorAction
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ACTIVE, ONGOING, ExecutionState, Outcome


@dataclass(frozen=True)
class Progress:
    """The progress of a loop.

    Attributes
    ----------
    iterations
        Items done, as of the last checkpoint.
    total
        Number of items; None when unknown.
    worked
        Running time of its executions, without the waits between them.
    """

    iterations: int
    total: int | None
    worked: timedelta

    @property
    def share(self) -> float | None:
        """The share that is done, from 0 to 1; None without a total."""
        if self.total is None:
            return None
        # The total is counted once, and rows may be added later.
        return min(1.0, self.iterations / self.total) if self.total else 1.0

    @property
    def rate(self) -> float | None:
        """Items per second of running time; None before the first item."""
        seconds = self.worked.total_seconds()
        return self.iterations / seconds if self.iterations and seconds > 0 else None

    @property
    def remaining(self) -> timedelta | None:
        """The running time that is left at this rate; None when unknown."""
        if self.total is None or self.rate is None:
            return None
        return timedelta(seconds=max(0, self.total - self.iterations) / self.rate)

    def __str__(self) -> str:
        done = f"{self.iterations:,}" if self.total is None else f"{self.iterations:,} of {self.total:,}"
        return done if self.share is None else f"{done} ({self.share:.0%})"


@dataclass(frozen=True)
class Chain:
    """Executions that continue one another from a cursor, oldest first: one run of a step.

    Any other execution is a chain of its own.
    """

    executions: tuple[StepExecution, ...]

    @property
    def first(self) -> StepExecution:
        return self.executions[0]

    @property
    def last(self) -> StepExecution:
        """The execution that shows how the chain ended, or where it is."""
        return self.executions[-1]

    @property
    def step_name(self) -> str:
        return str(self.last.step_name)

    @property
    def progress(self) -> Progress | None:
        """The progress of a loop; None for any other step."""
        last = self.last
        if not last.iterations and last.iterations_total is None and last.continues_from_id is None:
            return None
        worked = [max(duration_of(each) or timedelta(0), timedelta(0)) for each in self.executions]
        return Progress(last.iterations, last.iterations_total, sum(worked, timedelta(0)))


def chains(executions: Iterable[StepExecution]) -> list[Chain]:
    """Group the executions of one workflow into chains, in the order in which the chains began."""
    found: dict[object, list[StepExecution]] = {}
    first_of: dict[object, object] = {}
    for execution in sorted(executions, key=_age):
        # The one before may have been deleted, or not been fetched.
        first = first_of.get(execution.continues_from_id, execution.pk)
        first_of[execution.pk] = first
        found.setdefault(first, []).append(execution)
    return [Chain(tuple(chain)) for chain in found.values()]


def history(workflow: Workflow) -> list[Chain]:
    """Return what a workflow has done and is about to do, in one query."""
    rows = StepExecution.objects.using(workflow._state.db).filter(workflow_id=workflow.pk)
    return chains(rows.defer("cursor", "active_workflow", "error_message", "error_traceback"))


def progress(workflow: Workflow) -> Progress | None:
    """Return the progress of the loop at which a workflow is; None when it is at another step."""
    last = max(history(workflow), key=lambda chain: _age(chain.last), default=None)
    return last.progress if last is not None else None


def duration_of(execution: StepExecution, now: datetime | None = None) -> timedelta | None:
    """Return how long a step has run, or ran; None before it began."""
    if execution.started_at is None:
        return None
    until: Any = execution.finished_at or now or clock.now(execution._state.db)
    return clock.utc(until) - clock.utc(execution.started_at)


def _age(execution: StepExecution) -> Any:
    # As `latest_first` says: integer keys are exact, UUID keys are not.
    key: Any = execution.pk
    return key if isinstance(key, int) else (clock.utc(execution.created_at), key)


@dataclass(frozen=True)
class TimelineStep:
    """A step of the class, or an undeclared step that rows name."""

    name: str
    # "done", "skipped", "failed", "canceled", "current" (where the workflow is), "to come",
    # "gravestone" or "undeclared".
    status: str
    former_name: str | None = None  # the older name in the rows, if the step was renamed
    attempts: list[StepExecution] = field(default_factory=list)  # its executions, oldest first


@dataclass(frozen=True)
class Timeline:
    """Steps in the order of the class; attempts and operator actions by time, oldest first."""

    workflow: Workflow
    steps: list[TimelineStep]
    attempts: list[StepExecution]
    actions: list[OperatorAction]
    is_cut: bool = False  # whether earlier attempts or actions were left out

    @property
    def active(self) -> StepExecution | None:
        """The execution that is scheduled, waiting or in progress."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.is_active else None


def timeline_of(workflow: Workflow, *, most: int = 200) -> Timeline:
    """Return the timeline of the latest ``most`` attempts and ``most`` actions, in two queries."""
    using = workflow._state.db
    rows = StepExecution.objects.using(using).filter(workflow_id=workflow.pk)
    attempts = list(rows.latest_first()[:most])[::-1]
    operator_actions = OperatorAction.objects.using(using).filter(workflow_id=workflow.pk)
    actions = list(operator_actions.latest_first()[:most])[::-1]
    is_cut = most in (len(attempts), len(actions))
    return Timeline(workflow, _timeline_steps(workflow, attempts), attempts, actions, is_cut)


def _timeline_steps(workflow: Workflow, attempts: list[StepExecution]) -> list[TimelineStep]:
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
        TimelineStep(
            step.name,
            _status(by_step.get(step.name, []), is_current=step.name == current_name, removed=step.removed),
            former.get(step.name),
            by_step.get(step.name, []),
        )
        for step in steps
    ]
    lines += [TimelineStep(name, "undeclared", None, by_step.get(name, [])) for name in undeclared]
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
