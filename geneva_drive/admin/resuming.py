"""The choice of a step to resume at: what would run, what would not, and for whom it is no choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import Count
from django.utils.translation import gettext as _

from geneva_drive.definition.matchers import describe
from geneva_drive.definition.registry import registry
from geneva_drive.models.records import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.states import ExecutionState, Outcome, SignalState, WorkflowState

if TYPE_CHECKING:
    from geneva_drive.definition.collection import StepCollection, StepDefinition
    from geneva_drive.models.workflow import Workflow

__all__ = ["choices"]

_LISTED = 20


def choices(rows: Any, count: int, *, chosen: str | None) -> dict[str, Any]:
    """Return what the page shows for a queryset of ``count`` workflows."""
    cls, why_not = _class_of(rows)
    if cls is None:
        return {"impossible": why_not, "steps": []}
    paused = rows.filter(state=WorkflowState.PAUSED)
    able = paused.count()
    others = rows.exclude(state=WorkflowState.PAUSED)
    by_state = others.order_by("state").values_list("state").annotate(Count("pk"))
    if not able:
        return {"impossible": _("None of them is paused: pause them first."), "steps": []}
    done = _done(cls.steps, paused)
    return {
        "steps": [
            {
                "name": step.name,
                "removed": step.removed,
                "note": " · ".join(_notes(step, cls.steps, done, paused, able)),
                "checked": step.name == chosen,
            }
            for step in cls.steps
        ],
        "able": able,
        "cannot_count": count - able,
        "cannot_by_state": list(by_state) if count - able > _LISTED else [],
        "cannot": list(others.defer("metadata", "job_options").order_by("pk")[:_LISTED]),
    }


def _class_of(rows: Any) -> tuple[type[Workflow] | None, str]:
    labels = list(rows.order_by().values_list("type", flat=True).distinct()[:10])
    classes = {registry.get(label) for label in labels}
    if len(classes) > 1:
        return None, _("Choose workflows of one type: the steps of different classes cannot be compared.")
    cls = classes.pop() if classes else None
    return cls, _(
        "This code does not declare the class of these workflows, so there is no step to resume at."
    )


def _notes(
    step: StepDefinition, steps: StepCollection, done: dict[str, int], paused: Any, able: int
) -> list[str]:
    if step.removed:
        return [_("a removed step: nothing can resume there")]
    finished = done.get(step.name, 0)
    if finished >= able:
        notes = [_("runs again in %(count)s: it was done in all of them") % {"count": able}]
    elif finished:
        counts = {"again": finished, "first": able - finished}
        notes = [_("runs again in %(again)s, for the first time in %(first)s") % counts]
    else:
        notes = [_("runs for the first time in %(count)s") % {"count": able}]
    before = [
        each.name for each in steps.runnable if steps.names.index(each.name) < steps.names.index(step.name)
    ]
    kept = [name for name in before if done.get(name, 0) >= able]
    if kept:
        notes.append(_("stays done: %(steps)s") % {"steps": ", ".join(kept)})
    passed = [f"{name} ({able - done.get(name, 0)})" for name in before if name not in kept]
    if passed:
        notes.append(_("passes over what was never done: %(steps)s") % {"steps": ", ".join(passed)})
    if step.wait_for is not None:
        notes.append(_awaited(step, paused, able))
    return notes


def _awaited(step: StepDefinition, paused: Any, able: int) -> str:
    signal = describe(step.wait_for)  # type: ignore[arg-type]
    name = getattr(step.wait_for, "name", None)
    if not isinstance(name, str):
        return _("waits for %(signal)s") % {"signal": signal}
    there = Signal.objects.using(paused.db).filter(
        workflow__in=paused.order_by().values("pk"),
        name=name,
        state__in=(SignalState.PENDING, SignalState.CLAIMED),
    )
    have = there.aggregate(have=Count("workflow", distinct=True))["have"]
    counts = {"signal": signal, "have": have, "park": able - have}
    return _("waits for %(signal)s: %(have)s have one, %(park)s will park") % counts


def _done(steps: StepCollection, paused: Any) -> dict[str, int]:
    """Return, by step, in how many of the workflows it was completed, under whatever name."""
    rows: Any = StepExecution.objects.using(paused.db).filter(
        workflow__in=paused.order_by().values("pk"),
        state=ExecutionState.COMPLETED,
        outcome=Outcome.SUCCESS,
    )
    names: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    for name, count in rows.order_by().values_list("step_name").annotate(Count("workflow", distinct=True)):
        step = steps.resolve(name)
        if step is not None:
            names.setdefault(step.name, set()).add(name)
            counts[step.name] = count
    for step_name, both in names.items():
        if len(both) > 1:  # some did it before it was renamed, some after, and some both
            found = rows.filter(step_name__in=both).aggregate(count=Count("workflow", distinct=True))
            counts[step_name] = found["count"]
    return counts
