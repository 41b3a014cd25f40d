"""Workflows in flight: where they wait, which gravestones they still need, and what this code does not declare."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import router
from django.db.models import Count, Min, Q

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.matchers import describe
from geneva_drive.definition.registry import registry
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState


@dataclass(frozen=True)
class RemovedStep:
    """A gravestone, with the rows of ongoing workflows that name it.

    Attributes
    ----------
    executions
        Executions with this name, in any state.
    landing
        Workflows at the gravestone, which skip it when they continue.
    """

    type: str
    step: str
    executions: int
    landing: int

    @property
    def can_be_deleted(self) -> bool:
        """Whether no row in flight refers to the gravestone any more."""
        return not self.executions and not self.landing


@dataclass(frozen=True)
class Undeclared:
    """A step that rows in flight name and this code does not declare; a whole class, if ``step`` is None.

    Attributes
    ----------
    workflows
        Ongoing workflows at the step, or of the class.
    states
        The same, by state of the workflow.
    """

    type: str
    step: str | None
    workflows: int
    states: dict[str, int]


@dataclass(frozen=True)
class Waiting:
    """A step at which workflows wait for a signal. Paused workflows count, too.

    Attributes
    ----------
    waits_for
        What the step waits for, as this code declares it; None if the step is undeclared, or does not wait
        (housekeeping moves those workflows on).
    workflows
        The number of workflows that wait there.
    since
        When the first of them began to wait, aware, in UTC.
    too_long
        The number that have waited for longer than ``WAITING_TOO_LONG``.
    """

    type: str
    step: str
    waits_for: str | None
    workflows: int
    since: datetime
    too_long: int

    def __str__(self) -> str:
        awaited = self.waits_for or "a signal that this code does not know"
        text = f"{self.type}, {self.step}: {self.workflows} waiting for {awaited} since {self.since:%Y-%m-%d %H:%M} UTC"
        return text + (f", {self.too_long} of them too long" if self.too_long else "")


def waiting(using: str | None = None) -> list[Waiting]:
    """Return the steps at which workflows wait for signals, the longest wait first."""
    alias = using or router.db_for_read(Workflow)
    limit = clock.now(alias) - settings.WAITING_TOO_LONG
    rows = StepExecution.objects.using(alias).filter(state=ExecutionState.WAITING).order_by()
    counts = rows.values_list("workflow__type", "step_name").annotate(
        workflows=Count("pk"),
        since=Min("waiting_since"),
        too_long=Count("pk", filter=Q(waiting_since__lt=limit)),
    )
    found = []
    for label, step, count, since, too_long in counts:
        cls = registry.get(label)
        definition = cls.steps.resolve(step) if cls is not None else None
        matcher = definition.wait_for if definition is not None else None
        awaited = None if matcher is None else describe(matcher)
        found.append(Waiting(label, step, awaited, count, clock.utc(since), too_long))
    return sorted(found, key=lambda each: each.since)


def removed_steps_in_flight(using: str | None = None) -> list[RemovedStep]:
    """Return every gravestone of every class with its rows in flight, in the order of declaration."""
    alias = using or router.db_for_read(Workflow)
    found: list[RemovedStep] = []
    for cls in sorted(registry.all(), key=lambda each: each._geneva.label):
        names = [step.name for step in cls.steps.removed]
        if not names:
            continue
        labels = [cls._geneva.label, *cls._geneva.former_types]
        executions = StepExecution.objects.using(alias).in_flight(labels, names)
        rows: Any = Workflow.objects.using(alias).ongoing().filter(type__in=labels, next_step_name__in=names)
        landing = dict(rows.order_by().values_list("next_step_name").annotate(Count("pk")))
        found.extend(
            RemovedStep(cls._geneva.label, name, executions.get(name, 0), landing.get(name, 0))
            for name in names
        )
    return found


def undeclared_in_flight(using: str | None = None) -> list[Undeclared]:
    """Return the steps and classes of ongoing workflows that this code does not declare.

    Run it with the new code against the live database, to see before a deploy which workflows would pause.
    """
    alias = using or router.db_for_read(Workflow)
    rows: Any = Workflow.objects.using(alias).undeclared().order_by()
    found: dict[tuple[str, str | None], dict[str, int]] = {}
    for label, name, state, count in rows.values_list("type", "next_step_name", "state").annotate(
        Count("pk")
    ):
        # Nothing is known about the steps of an undeclared class, so they count as one.
        states = found.setdefault((label, name if registry.get(label) is not None else None), {})
        states[state] = states.get(state, 0) + count
    places = sorted(found.items(), key=lambda each: (each[0][0], each[0][1] or ""))
    return [Undeclared(label, name, sum(states.values()), states) for (label, name), states in places]
