"""Helpers of the tests of signals."""

from __future__ import annotations

from typing import Any

from geneva_drive import Signal, StepExecution, Workflow
from tests.testapp.models import Effect

__all__ = ["active", "at_gate", "notes", "signal_rows"]


def notes(workflow: Workflow) -> list[tuple[str, str]]:
    """Return (step, note) of the bodies that ran, in order."""
    rows = Effect.objects.using(workflow._state.db).filter(workflow=str(workflow.pk)).order_by("pk")
    return list(rows.values_list("step", "note"))


def active(workflow: Workflow) -> StepExecution:
    """Return the one active execution."""
    rows = StepExecution.objects.using(workflow._state.db)
    return rows.get(active_workflow=workflow.pk)


def signal_rows(workflow: Workflow) -> list[tuple[str, str, int, int]]:
    """Return (name, state, claimed, consumed) of the signals, oldest first."""
    rows = (
        Signal.objects.using(workflow._state.db).filter(workflow_id=workflow.pk).order_by("created_at", "pk")
    )
    return list(rows.values_list("name", "state", "claimed_count", "consumed_count"))


def at_gate(cls: type[Any], **options: Any) -> Any:
    """Start a workflow and run it until nothing is scheduled."""
    from geneva_drive.testing import run_to_end

    return run_to_end(cls.start(**options))
