"""What is ours on a row that a project saves: all of a new one, the time of any other."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from geneva_drive import clock
from geneva_drive.definition import options as job_options_of
from geneva_drive.exceptions import StepConfigurationError
from geneva_drive.lifecycle import scheduling
from geneva_drive.states import WorkflowState

if TYPE_CHECKING:
    from geneva_drive.models.workflow import Workflow

__all__ = ["fill", "moment_of", "touch"]


def fill(workflow: Workflow, now: datetime) -> None:
    """Set what a new row needs; refuse what it cannot be, before anything is written."""
    cls = type(workflow)
    if not cls._geneva.is_startable:
        raise StepConfigurationError(
            f"{cls._geneva.label} cannot be started: it is abstract, or the base of all workflows. Start a "
            "class that derives from it and declares steps."
        )
    workflow.type = cls._geneva.label
    if workflow.job_options is not None:
        job_options_of.validate(workflow.job_options, f"{cls._geneva.label}.start(job_options=…)")
    first = scheduling.first_step(workflow)
    moment = clock.local(now)
    workflow.created_at = workflow.updated_at = moment
    workflow.next_step_name = first.name if first else None
    if first is None:
        workflow.state = WorkflowState.FINISHED
        workflow.started_at = workflow.transitioned_at = moment
    else:
        workflow.state = WorkflowState.READY


def moment_of(at: datetime | None) -> datetime | None:
    """Return the moment that a run is to begin at, as given to ``start(at=…)``; refuse what is none."""
    if at is not None and not isinstance(at, datetime):
        raise TypeError(f"at={at!r} is not a moment. Give a datetime.")
    return None if at is None else clock.utc(at)


def touch(workflow: Workflow) -> None:
    """Note that a project's own change is written now."""
    workflow.updated_at = clock.local(clock.now(workflow._state.db))
