"""Verbs for finding workflows and executions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Self, TypeVar

from django.db import models

from geneva_drive.definition.registry import registry
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.models.hero import hero_filter
from geneva_drive.states import ACTIVE, ONGOING, ExecutionState, WorkflowState

_W_co = TypeVar("_W_co", bound=models.Model, covariant=True)
_E_co = TypeVar("_E_co", bound=models.Model, covariant=True)
_R_co = TypeVar("_R_co", bound=models.Model, covariant=True)


class RecordQuerySet(models.QuerySet[_R_co]):
    """Of what is recorded about one workflow: executions, signals, operator actions."""

    def latest_first(self) -> Self:
        """Order the records of one workflow by when they were created.

        UUID keys carry the clock of the host that made them, and hosts disagree; ``created_at`` is the
        database's clock. Integer keys are exact.
        """
        by_key = isinstance(self.model._meta.pk, models.AutoField)
        return self.order_by("-pk") if by_key else self.order_by("-created_at", "-pk")


class WorkflowQuerySet(models.QuerySet[_W_co]):
    """One verb per state, ``for_hero()``, and ``hero=`` wherever a look-up is."""

    def ongoing(self) -> Self:
        return self.filter(state__in=ONGOING)

    def ready(self) -> Self:
        return self.filter(state=WorkflowState.READY)

    def performing(self) -> Self:
        return self.filter(state=WorkflowState.PERFORMING)

    def paused(self) -> Self:
        return self.filter(state=WorkflowState.PAUSED)

    def finished(self) -> Self:
        return self.filter(state=WorkflowState.FINISHED)

    def canceled(self) -> Self:
        return self.filter(state=WorkflowState.CANCELED)

    def for_hero(self, hero: models.Model | models.QuerySet[Any]) -> Self:
        """Return the workflows of one hero, or of all heroes of a queryset."""
        return self.filter(hero_filter("hero", hero, self.db))

    def of_type(self, label: str) -> Self:
        """Return the workflows of a type as rows hold it, also of one that this code does not know."""
        known = registry.get(label)
        return self.filter(type__in=[label] if known is None else registry.labels_for(known))

    def at_step(self, name: str) -> Self:
        """Return those that stand at a step, by the name that their rows have."""
        return self.filter(next_step_name=name, state__in=ONGOING)

    def _filter_or_exclude_inplace(self, negate: bool, args: Any, kwargs: Any) -> None:
        if "hero" in kwargs:
            kwargs = dict(kwargs)
            args = (*args, hero_filter("hero", kwargs.pop("hero"), self.db))
        super()._filter_or_exclude_inplace(negate, args, kwargs)  # type: ignore[misc]

    # A row's class is told by its type, so no look-up may leave the type out.
    def only(self, *fields: Any) -> Self:
        return super().only("type", *fields)

    def defer(self, *fields: Any) -> Self:
        return super().defer(*(field for field in fields if field != "type"))

    def bulk_create(self, *_args: Any, **_options: Any) -> list[Any]:
        raise InvalidStateError(
            f"{self.model.__name__}.objects.bulk_create() would write workflows without their first step. "
            f"Use {self.model.__name__}.start_many(heroes)."
        )


class WorkflowManager(models.Manager.from_queryset(WorkflowQuerySet)):  # type: ignore[misc]
    """The manager of every workflow class; on a subclass it sees the rows of that class only."""

    def get_queryset(self) -> WorkflowQuerySet[Any]:
        queryset: WorkflowQuerySet[Any] = super().get_queryset()
        if self.model._meta.proxy:
            queryset = queryset.filter(type__in=registry.labels_for(self.model))
        return queryset


class StepExecutionQuerySet(RecordQuerySet[_E_co]):
    """Raw states as verbs."""

    def active(self) -> Self:
        return self.filter(state__in=ACTIVE)

    def scheduled(self) -> Self:
        return self.filter(state=ExecutionState.SCHEDULED)

    def in_progress(self) -> Self:
        return self.filter(state=ExecutionState.IN_PROGRESS)

    def free(self) -> Self:
        """What is scheduled and not on hold with a paused workflow, now or later."""
        # Not ``on_hold=False``: Django writes that as NOT on_hold, by which SQLite enters no index.
        return self.filter(state=ExecutionState.SCHEDULED, on_hold__in=(False,))

    def due(self, now: datetime) -> Self:
        """What may run at ``now``: scheduled, not on hold with a paused workflow, and its time has come."""
        return self.free().filter(scheduled_for__lte=now)

    def in_flight(self, types: Iterable[str], names: Iterable[str]) -> dict[str, int]:
        """Return, by step name, the rows of ongoing workflows of these types that name these steps."""
        rows = self.filter(
            workflow__type__in=list(types), workflow__state__in=ONGOING, step_name__in=list(names)
        )
        return dict(rows.order_by("step_name").values_list("step_name").annotate(models.Count("pk")))
