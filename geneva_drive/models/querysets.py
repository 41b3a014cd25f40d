"""Query methods of workflows, executions and the other records: each rule about rows has its one home here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Self, TypeVar

from django.db import models
from django.db.models import OuterRef, Q, Subquery

from geneva_drive.definition.registry import registry
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.models.hero import hero_filter
from geneva_drive.states import ACTIVE, ONGOING, ExecutionState, WorkflowState

_W_co = TypeVar("_W_co", bound=models.Model, covariant=True)
_E_co = TypeVar("_E_co", bound=models.Model, covariant=True)
_R_co = TypeVar("_R_co", bound=models.Model, covariant=True)


class IndexedQuerySet(models.QuerySet[_R_co]):
    """Queries that work on every model of geneva_drive."""

    def skip_scan(self, column: str) -> Iterator[Any]:
        """Yield the distinct values of a column in order, without NULL.

        Each look-up jumps to the next value in the index, so the cost grows with the values and not with the rows.
        """
        rows = (
            self.filter(**{f"{column}__isnull": False}) if self.model._meta.get_field(column).null else self
        )
        values = rows.order_by(column).values_list(column, flat=True)
        value = values.first()
        while value is not None:
            yield value
            value = values.filter(**{f"{column}__gt": value}).first()

    def pages(self, *columns: str, size: int, by: str = "pk") -> Iterator[list[Any]]:
        """Yield the rows in lists of at most ``size`` tuples, ordered by ``by`` and the primary key.

        Each tuple has these two and then ``columns``. Each list is a query of its own that starts in the index
        after the last row of the list before, so rows may be changed or deleted in between.
        """
        order = list(dict.fromkeys((by, "pk")))
        rows = self.order_by(*order).values_list(*order, *columns)
        page = list(rows[:size])
        while page:
            yield page
            if len(page) < size:
                return
            value, pk = page[-1][0], page[-1][len(order) - 1]
            if by == "pk":
                after = rows.filter(pk__gt=pk)
            else:
                # The bound alone is implied, but a database cannot enter an index by the OR.
                after = rows.filter(Q(**{f"{by}__gt": value}) | Q(pk__gt=pk), **{f"{by}__gte": value})
            page = list(after[:size])


class RecordQuerySet(IndexedQuerySet[_R_co]):
    """Records that belong to one workflow: executions, signals, operator actions."""

    def latest_first(self) -> Self:
        """Order the records of one workflow by when they were created.

        UUID keys carry the clock of the host that made them, and hosts disagree; ``created_at`` is the
        database's clock. Integer keys are exact.
        """
        by_key = isinstance(self.model._meta.pk, models.AutoField)
        return self.order_by("-pk") if by_key else self.order_by("-created_at", "-pk")


class WorkflowQuerySet(IndexedQuerySet[_W_co]):
    """Workflows by state, hero, type and step. ``hero=`` works in every look-up."""

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
        """Return the workflows of a type, which this code need not declare."""
        known = registry.get(label)
        return self.filter(type__in=[label] if known is None else registry.labels_for(known))

    def at_step(self, name: str) -> Self:
        """Return the ongoing workflows at a step, by the name in their rows."""
        return self.filter(next_step_name=name, state__in=ONGOING)

    def undeclared(self) -> Self:
        """Return the ongoing workflows whose class or step this code does not declare."""
        types = type(self)(self.model, using=self.db).skip_scan("type")
        found = Q(type__in=[label for label in types if registry.get(label) is None])
        for cls in registry.all():
            names = [name for step in cls.steps for name in (step.name, *step.formerly)]
            labels = [cls._geneva.label, *cls._geneva.former_types]
            found |= Q(type__in=labels, next_step_name__isnull=False) & ~Q(next_step_name__in=names)
        return self.filter(found, state__in=ONGOING)

    def with_latest_error(self) -> Self:
        """Annotate ``latest_error``: the class of the latest failure at the step where a workflow is.

        An error of an earlier step is history, and is not the reason for a pause.
        """
        executions: Any = self.model._meta.get_field("executions").related_model
        failed = executions.objects.using(self.db).filter(
            state=ExecutionState.FAILED, workflow_id=OuterRef("pk"), step_name=OuterRef("next_step_name")
        )
        return self.annotate(latest_error=Subquery(failed.latest_first().values("error_class")[:1]))

    def latest_errors(self) -> dict[Any, str | None]:
        """Return, by key, the ``latest_error`` of the paused workflows."""
        return dict(self.paused().order_by().with_latest_error().values_list("pk", "latest_error"))

    def _filter_or_exclude_inplace(self, negate: bool, args: Any, kwargs: Any) -> None:
        if "hero" in kwargs:
            kwargs = dict(kwargs)
            args = (*args, hero_filter("hero", kwargs.pop("hero"), self.db))
        super()._filter_or_exclude_inplace(negate, args, kwargs)  # type: ignore[misc]

    # The type decides a row's class, so every look-up loads it.
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
    """The manager of every workflow class. On a subclass it sees only the rows of that class."""

    def get_queryset(self) -> WorkflowQuerySet[Any]:
        queryset: WorkflowQuerySet[Any] = super().get_queryset()
        if self.model._meta.proxy:
            queryset = queryset.filter(type__in=registry.labels_for(self.model))
        return queryset


class StepExecutionQuerySet(RecordQuerySet[_E_co]):
    """Executions by state, and by whether they are due."""

    def active(self) -> Self:
        return self.filter(state__in=ACTIVE)

    def scheduled(self) -> Self:
        return self.filter(state=ExecutionState.SCHEDULED)

    def in_progress(self) -> Self:
        return self.filter(state=ExecutionState.IN_PROGRESS)

    def free(self) -> Self:
        """Return what is scheduled, now or later, and not on hold with a paused workflow."""
        # Not ``on_hold=False``: Django writes that as NOT on_hold, for which SQLite uses no index.
        return self.filter(state=ExecutionState.SCHEDULED, on_hold__in=(False,))

    def due(self, now: datetime) -> Self:
        """Return what may run at ``now``: scheduled, not on hold, and its time has come."""
        return self.free().filter(scheduled_for__lte=now)

    def buckets(self, queues: Iterable[str] | None = None) -> list[tuple[int, str]]:
        """Return the (priority, queue) pairs that have something scheduled, most urgent first.

        Two look-ups in the index per pair, however many rows there are.
        """
        rows = self.free()
        return sorted(
            (priority, queue)
            for queue in (queues if queues is not None else rows.skip_scan("queue"))
            for priority in rows.filter(queue=queue).skip_scan("priority")
        )

    def overdue(self, before: datetime) -> Self:
        """Return what has been due since ``before`` or longer.

        The index orders rows by time only within one queue and priority, so the condition names each pair.
        """
        due = Q(pk__in=[])
        for priority, queue in type(self)(self.model, using=self.db).buckets():
            due |= Q(queue=queue, priority=priority)
        return self.due(before).filter(due)

    def in_flight(self, types: Iterable[str], names: Iterable[str]) -> dict[str, int]:
        """Count the executions of ongoing workflows of these types, by step name."""
        rows = self.filter(
            workflow__type__in=list(types), workflow__state__in=ONGOING, step_name__in=list(names)
        )
        return dict(rows.order_by("step_name").values_list("step_name").annotate(models.Count("pk")))
