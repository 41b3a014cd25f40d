"""Helpers of the tests that run and move workflows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.apps import apps

from geneva_drive import StepExecution, Workflow
from geneva_drive.definition.registry import registry
from geneva_drive.execution.executor import execute
from geneva_drive.execution.runner import Runner

trace: list[Any] = []
"""What bodies, hooks and conditions recorded, in order. Cleared before each test."""


class Free(Workflow):
    """Base class that gives test classes an app and needs no hero."""

    hero: Any
    may_proceed_without_hero = True

    class Meta:
        abstract = True
        app_label = "testapp"


@contextmanager
def own_classes_forgotten() -> Iterator[None]:
    """Unregister the workflow classes that a test declares."""
    classes, former = dict(registry._classes), dict(registry._former)
    models = dict(apps.all_models["testapp"])
    try:
        yield
    finally:
        if apps.all_models["testapp"] != models or registry._classes != classes:
            registry._classes, registry._former = classes, former
            apps.all_models["testapp"].clear()
            apps.all_models["testapp"].update(models)
            apps.clear_cache()


def active(workflow: Workflow) -> StepExecution:
    """Return the one execution that is scheduled, waiting or in progress."""
    return StepExecution.objects.using(workflow._state.db).active().get(workflow_id=workflow.pk)


def history(workflow: Workflow) -> list[tuple[str, str, str | None]]:
    """Return step, state and outcome of each execution, oldest first."""
    rows = StepExecution.objects.using(workflow._state.db).filter(workflow_id=workflow.pk).order_by("pk")
    return list(rows.values_list("step_name", "state", "outcome"))


def run(workflow: Workflow, *, inline_continuation: bool = False) -> int:
    """Execute what is active, as a dispatcher would; refresh the instance. By default one step."""
    try:
        return execute(
            active(workflow).pk,
            using=workflow._state.db,
            runner=Runner(inline_continuation=inline_continuation),
        )
    finally:
        workflow.refresh_from_db()


def columns(row: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return every column of a row as it is in the database."""
    fresh = type(row)._base_manager.using(row._state.db).get(pk=row.pk)
    names = [field.attname for field in fresh._meta.concrete_fields if field.attname not in without]
    return {name: getattr(fresh, name) for name in names}


def everything(workflow: Workflow) -> list[dict[str, Any]]:
    """Return every column of the workflow and its executions, to show that nothing changed."""
    executions = StepExecution.objects.using(workflow._state.db).filter(workflow_id=workflow.pk)
    return [columns(workflow), *(columns(row) for row in executions.order_by("pk"))]
