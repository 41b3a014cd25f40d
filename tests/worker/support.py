"""What tests of workers and housekeeping share."""

from __future__ import annotations

from typing import Any

from geneva_drive import StepExecution, Workflow

__all__ = ["TRACE", "Base", "active", "history"]

TRACE: list[Any] = []
"""What steps recorded, in order. Emptied before each test of this folder."""


class Base(Workflow):
    """Gives the classes of the tests an app, and needs no hero."""

    hero: Any
    may_proceed_without_hero = True

    class Meta:
        abstract = True
        app_label = "workshop"


def active(workflow: Workflow) -> StepExecution:
    """The one execution that is scheduled, waiting or in progress."""
    return StepExecution.objects.active().get(workflow_id=workflow.pk)


def history(workflow: Workflow) -> list[tuple[str, str, str | None]]:
    """Step, state and outcome of each execution, oldest first."""
    rows = StepExecution.objects.filter(workflow_id=workflow.pk).order_by("pk")
    return list(rows.values_list("step_name", "state", "outcome"))
