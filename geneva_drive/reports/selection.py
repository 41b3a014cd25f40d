"""Choosing workflows by filters and by search, for the commands and the admin."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import EmptyResultSet, ValidationError
from django.db.models import Q

from geneva_drive import clock
from geneva_drive.exceptions import HeroKeyError
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ACTIVE, ONGOING, ExecutionState, WorkflowState


def hero_condition(text: str, using: str) -> Q:
    """Return the condition for ``app.model:key``, or for a key of any model.

    Raises
    ------
    ValueError
        There is no such model, or the key does not fit it.
    """
    label, colon, key = text.strip().rpartition(":")
    if not colon:
        condition = _any_hero(key, using)
        if not _fits(condition, using):
            raise ValueError(
                f"{text!r} cannot be a hero's key: write app.model:key, for example shop.order:42."
            )
        return condition
    if not key or label.count(".") != 1:
        raise ValueError(f"{text}: write app.model:key, for example shop.order:42.")
    app_label, model = label.lower().split(".")
    found = ContentType.objects.db_manager(using).filter(app_label=app_label, model=model).first()
    if found is None:
        raise ValueError(f"{text}: there is no model {label}.")
    try:
        value = apps.get_model(label)._meta.pk.to_python(key)
    except LookupError:
        value = key  # the model was deleted, and rows still name it
    except ValidationError as error:
        raise ValueError(f"{text}: {key!r} is not a key of {label}: {' '.join(error.messages)}") from error
    condition = Q(hero_type=found, hero_id=value)
    return condition if _fits(condition, using) else Q(pk__in=[])


def search(text: str, using: str) -> Q:
    """Return the condition for a search: an id, a hero's key, a hero's model, or ``app.model:key``."""
    term = text.strip()
    if ":" in term:
        with contextlib.suppress(ValueError):
            return hero_condition(term, using)
    found = Q(pk__in=[])
    with contextlib.suppress(ValidationError):
        found |= Q(pk=Workflow._meta.pk.to_python(term))
    by_key = _any_hero(term, using)
    if _fits(by_key, using):
        found |= by_key
    app_label, _, model = term.lower().rpartition(".")
    named = ContentType.objects.db_manager(using).filter(pk__in=_hero_types(using), model=model)
    if app_label:
        named = named.filter(app_label=app_label)
    keys = list(named.values_list("pk", flat=True))
    return found | Q(hero_type_id__in=keys) if keys else found


def _any_hero(key: str, using: str) -> Q:
    # Naming the types lets the database use the index of type and key.
    return Q(hero_type_id__in=_hero_types(using), hero_id=key)


def _fits(condition: Q, using: str) -> bool:
    """Whether the column can hold the key. Only preparing the query for this database shows it."""
    try:
        str(Workflow._base_manager.using(using).filter(condition).query)
    except EmptyResultSet:
        return True
    except (HeroKeyError, ValueError, TypeError, OverflowError, ValidationError):
        return False
    return True


def _hero_types(using: str) -> list[int]:
    """Return the content types that heroes have."""
    return list(Workflow.objects.using(using).skip_scan("hero_type_id"))


_NOTHING: tuple[object, ...] = (None, False, (), "")


@dataclass(frozen=True)
class Selection:
    """Conditions that must all hold; None, False and empty values select nothing in particular."""

    type: str | None = None
    states: tuple[str, ...] = ()
    step: str | None = None  # where the workflow is
    tried: str | None = None  # a step that it has an execution of, in any state
    hero: str | None = None  # ``app.model:key``, or a key of any model
    error: str | None = None  # class of the latest error of a paused workflow, with or without its module
    queue: str | None = None  # of the active execution
    overdue: timedelta | None = None  # ready, and overdue by more than this
    waiting_longer: timedelta | None = None  # waiting for a signal for longer than this
    undeclared: bool = False  # its class or step is not declared in this code
    # Aware moments; "moved" is when it was last finished, canceled or paused.
    created_after: datetime | None = None
    created_before: datetime | None = None
    moved_after: datetime | None = None
    search: str = ""  # an id, a hero's key, a hero's model, or ``app.model:key``
    up_to: Any = None  # no key above this one, which leaves out workflows that are added later

    def __bool__(self) -> bool:
        return bool(self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        """Return the conditions that are set."""
        asked = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in asked.items() if value not in _NOTHING}

    def apply(self, rows: Any, using: str) -> Any:
        """Narrow a queryset of workflows.

        Raises
        ------
        ValueError
            ``hero`` cannot be read.
        """
        if self.type:
            rows = rows.of_type(self.type)
        if self.undeclared:
            rows = rows.undeclared()
        for condition in self._conditions(using):
            rows = rows.filter(condition)
        return rows

    def _conditions(self, using: str) -> Iterator[Q]:
        now = clock.now(using)
        if self.states:
            yield Q(state__in=self.states)
        if self.step:
            yield Q(next_step_name=self.step, state__in=ONGOING)
        if self.tried:
            yield _executions(using, step_name=self.tried)
        if self.hero:
            yield hero_condition(self.hero, using)
        if self.error:
            yield _with_error(using, self.error)
        if self.queue:
            # Naming both values of "on_hold" lets the database use the index, where it precedes the queue.
            yield _executions(using, queue=self.queue, state__in=ACTIVE, on_hold__in=(False, True))
        if self.overdue is not None:
            rows = StepExecution.objects.using(using).overdue(now - self.overdue)
            yield Q(pk__in=rows.order_by().values("workflow_id"), state=WorkflowState.READY)
        if self.waiting_longer is not None:
            before = clock.local(now - self.waiting_longer)
            yield _executions(using, state=ExecutionState.WAITING, waiting_since__lte=before)
        if self.created_after is not None:
            yield Q(created_at__gte=clock.local(self.created_after))
        if self.created_before is not None:
            yield Q(created_at__lt=clock.local(self.created_before))
        if self.moved_after is not None:
            # Naming all states lets the database use the index of state and transition.
            yield Q(state__in=WorkflowState.values, transitioned_at__gte=clock.local(self.moved_after))
        if self.search:
            yield search(self.search, using)
        if self.up_to is not None:
            yield Q(pk__lte=self.up_to)


def _executions(using: str, **conditions: Any) -> Q:
    return Q(pk__in=StepExecution.objects.using(using).filter(**conditions).order_by().values("workflow_id"))


def _with_error(using: str, name: str) -> Q:
    classes = errors_named(using, name)
    failures = StepExecution.objects.using(using).filter(state=ExecutionState.FAILED, error_class__in=classes)
    # The index of errors finds the few candidates, and only their latest errors are looked up.
    paused = Workflow.objects.using(using).paused().filter(pk__in=failures.values("workflow_id"))
    return Q(pk__in=paused.with_latest_error().filter(latest_error__in=classes).values("pk"))


def errors_named(using: str, name: str) -> list[str]:
    """Return the full paths of the error classes that a path or a bare name means."""
    return [each for each in error_classes(using) if each == name or each.endswith(f".{name}")]


def error_classes(using: str) -> Iterator[str]:
    """Yield the classes of the errors of all attempts."""
    return StepExecution.objects.using(using).skip_scan("error_class")
