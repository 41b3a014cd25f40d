"""What does not move, and why nobody but a person moves it on.

A bounded number of queries. What may be many is counted up to `_MANY`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import Count, OuterRef, Q, Subquery

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.registry import registry
from geneva_drive.doctor.finding import Finding
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.selecting import Selection
from geneva_drive.states import ExecutionState, WorkflowState

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["failures", "rows", "stranded"]

_MANY = 10_000

_UNITS = ((timedelta(days=1), "day"), (timedelta(hours=1), "hour"), (timedelta(minutes=1), "minute"))


def rows(alias: str) -> Iterator[Finding]:
    now = clock.now(alias)
    limit = _in_words(settings.OVERDUE_AFTER)
    overdue = StepExecution.objects.using(alias).due(now - settings.OVERDUE_AFTER)
    late = overdue[:_MANY].count()
    if late:
        oldest = overdue.order_by("scheduled_for").values_list("scheduled_for", flat=True).first()
        behind = now - clock.utc(oldest) if oldest is not None else timedelta(0)
        yield Finding(
            "warning",
            "overdue",
            f"{_count(late)} executions are overdue by more than {limit}, the oldest by {str(behind).split('.')[0]}.",
            "Look for live processes on those queues; geneva_list --overdue lists the workflows.",
        )
    stuck = StepExecution.objects.using(alias).filter(
        state=ExecutionState.IN_PROGRESS, process__isnull=True, started_at__lt=now - settings.STUCK_AFTER
    )
    lost = stuck[:_MANY].count()
    if lost:
        yield Finding(
            "warning",
            "stuck",
            f"{_count(lost)} executions are in progress without a known process for more than "
            f"{_in_words(settings.STUCK_AFTER)}.",
            "geneva_housekeeping recovers them.",
        )
    if not late and not lost:
        yield Finding("ok", "rows", f"Nothing is overdue by more than {limit}, and nothing is stuck.")


def stranded(alias: str) -> Iterator[Finding]:
    """Workflows at steps and of classes that this code does not declare: those of ``geneva_list --stranded``."""
    found = Selection(stranded=True).apply(Workflow.objects.using(alias), alias)
    counts: dict[tuple[str, str | None], dict[str, int]] = {}
    by_place: Any = found.order_by().values_list("type", "next_step_name", "state").annotate(Count("pk"))
    for label, step, state, count in by_place:
        # Of a class that is gone, no step is known: they are told as one.
        states = counts.setdefault((label, step if registry.get(label) is not None else None), {})
        states[state] = states.get(state, 0) + count
    for (label, step), states in sorted(counts.items(), key=lambda each: (each[0][0], each[0][1] or "")):
        total = sum(states.values())
        told = ", ".join(f"{states[state]} {state}" for state in WorkflowState.values if state in states)
        if step is None:
            yield Finding(
                "warning",
                "stranded",
                f"{total} workflows are of the class {label}, which this code does not declare ({told}).",
                "Declare it again, name it in the former_types of the class that took its place, or cancel them: "
                f"geneva_cancel --type {label} --stranded.",
            )
            continue
        yield Finding(
            "warning",
            "stranded",
            f"{total} workflows stand at the step {step!r} of {label}, which this code does not declare ({told}).",
            f"Leave a gravestone, {step} = removed_step(), or name the step that took its place: "
            f'formerly=["{step}"]. Or take them on at another step: first geneva_pause those that are ready, then '
            f"geneva_resume_at STEP, each with --type {label} --step {step}.",
        )


def failures(alias: str) -> Iterator[Finding]:
    """Workflows that are paused since their latest attempt failed, among those that were paused last."""
    attempts = StepExecution.objects.using(alias).filter(workflow_id=OuterRef("pk")).latest_first()
    paused = (
        Workflow._base_manager.using(alias).filter(state=WorkflowState.PAUSED).order_by("-transitioned_at")
    )
    latest = paused.annotate(latest=Subquery(attempts.values("state")[:1])).values("pk", "latest")[:_MANY]
    counts = latest.aggregate(all=Count("pk"), failed=Count("pk", filter=Q(latest=ExecutionState.FAILED)))
    if not counts["failed"]:
        return
    more = "+" if counts["all"] == _MANY else ""
    yield Finding(
        "warning",
        "failures",
        f"{counts['failed']}{more} workflows are paused because a step failed.",
        "geneva_list --state paused names the errors, geneva_show ID --errors tells more of one. Once the cause is "
        "mended, geneva_resume --error CLASS tries all of one error again.",
    )


def _count(count: int) -> str:
    return f"{count}{'+' if count == _MANY else ''}"


def _in_words(delta: timedelta) -> str:
    """Return a setting as people say it where it is whole: ``10 minutes``."""
    for size, name in _UNITS:
        if delta and not delta % size:
            number = delta // size
            return f"{number} {name}{'' if number == 1 else 's'}"
    return str(delta)
