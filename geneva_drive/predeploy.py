"""Predict, before a deploy, what this code would do to the workflows in flight.

Run it with the new code against the live database. It only reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db import router
from django.db.models import Count

from geneva_drive.definition.registry import registry
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.in_flight import removed_steps_in_flight, undeclared_in_flight
from geneva_drive.states import ONGOING, ExecutionState, Outcome, WorkflowState

__all__ = ["Effect", "Predeploy", "look_ahead"]


@dataclass(frozen=True)
class Effect:
    """What would happen to some workflows of one type."""

    kind: str  # "undeclared", "deferred", "repeated", "skipped" or "deletable"
    type: str
    step: str | None  # none if it concerns the whole class
    workflows: int  # the number of workflows that it concerns
    # Whole sentences, as the hint is.
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Predeploy:
    """All effects, the worst first."""

    effects: list[Effect] = field(default_factory=list)

    def of(self, kind: str) -> list[Effect]:
        """Return the effects of one kind."""
        return [effect for effect in self.effects if effect.kind == kind]

    @property
    def has_undeclared(self) -> bool:
        """Whether a workflow would pause until a person resumes it."""
        return bool(self.of("undeclared"))

    @property
    def has_warnings(self) -> bool:
        """Whether a step would be deferred or repeated."""
        return bool(self.of("deferred") or self.of("repeated"))


def look_ahead(using: str | None = None) -> Predeploy:
    """Compare this code with the ongoing workflows of a database."""
    alias = using or router.db_for_read(Workflow)
    return Predeploy([*_undeclared(alias), *_repeated(alias), *_gravestones(alias)])


def _undeclared(alias: str) -> Iterator[Effect]:
    for found in undeclared_in_flight(alias):
        if found.step:
            place, running_step = f"at the step {found.step!r}", f"the step {found.step!r}"
            hint = (
                f"Leave a gravestone, {found.step} = removed_step(), or name the step that replaced it: "
                f'formerly=["{found.step}"].'
            )
        else:
            place, running_step = "of this class", "a step of this class"
            hint = (
                "Keep the class until its workflows have ended, add it to the former_types of another class, or "
                f"cancel them: geneva_cancel --type {found.type}."
            )
        # A step that runs now is finished by the old code.
        running = found.states.get(WorkflowState.PERFORMING, 0)
        stopped = found.workflows - running
        if stopped:
            message = f"{stopped} are {place}, which this code does not declare: they would pause."
            yield Effect("undeclared", found.type, found.step, stopped, message, hint)
        if running:
            message = (
                f"{running} are running {running_step}, which this code does not declare: old workers finish it. If "
                "such a worker dies first, the workflow is deferred for UNDEFINED_STEP_GRACE and then pauses."
            )
            yield Effect("deferred", found.type, found.step, running, message, hint)


def _repeated(alias: str) -> Iterator[Effect]:
    """Find completed steps that come after the step where their workflow is now."""
    for cls in sorted(registry.all(), key=lambda each: each._geneva.label):
        order = {name: place for place, name in enumerate(cls.steps.names)}
        done = StepExecution.objects.using(alias).filter(
            workflow__type__in=[cls._geneva.label, *cls._geneva.former_types],
            workflow__state__in=ONGOING,
            workflow__next_step_name__isnull=False,
            state=ExecutionState.COMPLETED,
            outcome=Outcome.SUCCESS,
        )
        again: Counter[str] = Counter()
        pairs: Any = done.order_by().values_list("workflow__next_step_name", "step_name")
        for pointed, name, count in pairs.annotate(Count("workflow", distinct=True)):
            current, completed = cls.steps.resolve(pointed), cls.steps.resolve(name)
            if current is None or completed is None or completed.removed:
                continue
            if order[completed.name] > order[current.name]:
                again[completed.name] += count
        for name, count in again.items():
            yield Effect(
                "repeated",
                cls._geneva.label,
                name,
                count,
                f"{count} have completed {name!r}, which now comes after the step where they are: it would run again.",
                "Leave the step where it was, skip it when its work is done (skip_if), or deploy after those workflows "
                "have passed it. This also counts workflows that were resumed at an earlier step.",
            )


def _gravestones(alias: str) -> Iterator[Effect]:
    for found in removed_steps_in_flight(alias):
        if found.landing:
            message = f"{found.landing} are at the gravestone {found.step!r}: they skip it and continue."
            yield Effect("skipped", found.type, found.step, found.landing, message)
        if found.can_be_deleted:
            message = f"No row in flight refers to the gravestone {found.step!r}: you can delete it."
            yield Effect("deletable", found.type, found.step, 0, message)
