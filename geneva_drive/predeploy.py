"""What this code would do to the workflows that are in flight: to be asked before it is deployed.

Run with the new code against the live database. It only reads.
"""

from __future__ import annotations

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
    """What would happen to some workflows of one type.

    Attributes
    ----------
    kind
        "undeclared", "deferred", "repeated", "skipped" or "deletable".
    step
        None where the whole class is meant.
    workflows
        How many are concerned.
    message, hint
        Whole sentences.
    """

    kind: str
    type: str
    step: str | None
    workflows: int
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Predeploy:
    """Everything that was found, by severity."""

    effects: list[Effect] = field(default_factory=list)

    def of(self, kind: str) -> list[Effect]:
        return [effect for effect in self.effects if effect.kind == kind]

    @property
    def strands(self) -> bool:
        """Whether a workflow would come to a halt that only a person can end."""
        return bool(self.of("undeclared"))

    @property
    def warns(self) -> bool:
        """Whether something would be deferred or done a second time."""
        return bool(self.of("deferred") or self.of("repeated"))


def look_ahead(using: str | None = None) -> Predeploy:
    """Compare this code with the ongoing workflows of a database."""
    alias = using or router.db_for_read(Workflow)
    effects: list[Effect] = []
    effects += _undeclared(alias)
    effects += _repeated(alias)
    effects += _gravestones(alias)
    return Predeploy(effects)


def _undeclared(alias: str) -> list[Effect]:
    effects = []
    for found in undeclared_in_flight(alias):
        # A body that runs now is old code's: that code finishes it, and only what follows is ours.
        running = found.states.get(WorkflowState.PERFORMING, 0)
        stopped = found.workflows - running
        hint = (
            f"Leave a gravestone, {found.step} = removed_step(), or name the step that took its place: "
            f'formerly=["{found.step}"].'
            if found.step
            else "Keep the class until its workflows have ended, name it in another one's former_types, or cancel "
            f"them: geneva_cancel --type {found.type}."
        )
        if stopped:
            message = (
                f"{stopped} stand at the step {found.step!r}, which this code does not declare: they would pause."
                if found.step
                else f"{stopped} are of this class, which this code does not declare: they would pause."
            )
            effects.append(Effect("undeclared", found.type, found.step, stopped, message, hint))
        if running:
            what = f"the step {found.step!r}" if found.step else "a step of this class"
            message = (
                f"{running} perform {what} now, which this code does not declare: old workers finish it; should "
                "one die in the middle, recovery waits for the grace and then pauses."
            )
            effects.append(Effect("deferred", found.type, found.step, running, message, hint))
    return effects


def _repeated(alias: str) -> list[Effect]:
    """Completed steps that stand behind the point where their workflow stands: moved there, or gone back."""
    effects = []
    for cls in sorted(registry.all(), key=lambda each: each._geneva.label):
        order = {name: place for place, name in enumerate(cls.steps.names)}
        done = StepExecution.objects.using(alias).filter(
            workflow__type__in=[cls._geneva.label, *cls._geneva.former_types],
            workflow__state__in=ONGOING,
            workflow__next_step_name__isnull=False,
            state=ExecutionState.COMPLETED,
            outcome=Outcome.SUCCESS,
        )
        again: dict[str, int] = {}
        pairs: Any = done.order_by().values_list("workflow__next_step_name", "step_name")
        for pointed, name, count in pairs.annotate(Count("workflow", distinct=True)):
            stands, completed = cls.steps.resolve(pointed), cls.steps.resolve(name)
            if stands is None or completed is None or completed.removed or completed.name == stands.name:
                continue
            if order[completed.name] > order[stands.name]:
                again[completed.name] = again.get(completed.name, 0) + count
        effects += [
            Effect(
                "repeated",
                cls._geneva.label,
                name,
                count,
                f"{count} have completed {name!r}, which now comes after the step where they stand: it would run "
                "a second time.",
                "Leave the step where it was, skip it when its work is done (skip_if), or let those workflows "
                "pass first. Workflows that were resumed at an earlier step by hand are counted, too.",
            )
            for name, count in again.items()
        ]
    return effects


def _gravestones(alias: str) -> list[Effect]:
    effects = []
    for found in removed_steps_in_flight(alias):
        if found.landing:
            message = (
                f"{found.landing} stand at the gravestone {found.step!r}: it is skipped, and they go on."
            )
            effects.append(Effect("skipped", found.type, found.step, found.landing, message))
        if found.can_be_deleted:
            message = f"No row in flight refers to the gravestone {found.step!r} any more: it can be deleted."
            effects.append(Effect("deletable", found.type, found.step, 0, message))
    return effects
