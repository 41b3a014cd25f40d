"""Going on at a step of the code as it is now, in a workflow that has nothing scheduled."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from geneva_drive import tracing
from geneva_drive.exceptions import StepNotDefinedError
from geneva_drive.lifecycle import scheduling, transitions
from geneva_drive.lifecycle.locking import alias_of
from geneva_drive.states import WorkflowState

if TYPE_CHECKING:
    from datetime import datetime

    from geneva_drive.definition.collection import StepDefinition
    from geneva_drive.events import Pending
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["defined", "go_on_at", "runnable"]

_NO_WAIT = timedelta(0)


def go_on_at(
    locked: Workflow,
    definition: StepDefinition | None,
    now: datetime,
    pending: Pending,
    *,
    wait: timedelta | None = _NO_WAIT,
    continues: StepExecution | None = None,
) -> StepExecution | None:
    """Schedule a step of a workflow that has no active execution, or finish it."""
    state = WorkflowState.READY if definition is not None else WorkflowState.FINISHED
    name = definition.name if definition is not None else None
    transitions.move(locked, state, now=now, next_step_name=name, pending=pending)
    if definition is None:
        return None
    execution = scheduling.build(
        locked, definition, now=now, wait=wait, trace=_trace(locked), continues=continues
    )
    transitions.flush(execution)
    return execution


def _trace(locked: Workflow) -> dict[str, str] | None:
    """Return the trace context that the latest execution has; nothing is asked where nobody traces."""
    if not tracing.is_on():
        return None
    rows = locked.executions.db_manager(alias_of(locked)).only("metadata", "workflow_id")
    latest = rows.latest_first().first()
    return latest.trace if latest is not None else None


def defined(workflow: Workflow, name: str | None, done: str) -> StepDefinition | None:
    """Return the definition that a stored name stands for; None for a workflow pointed at nothing.

    Raises
    ------
    StepNotDefinedError
        This code does not declare the step, or the class. The message names the ways out.
    """
    if name is None:
        return None
    if not type(workflow)._geneva.is_startable:
        raise StepNotDefinedError(
            f"{workflow} cannot be {done}: {runnable(workflow)} Ways out: cancel(), declare the class again, or name "
            "it in the former_types of the one that took its place."
        )
    definition = workflow.steps.resolve(name)
    if definition is None:
        is_paused = workflow.state == WorkflowState.PAUSED
        resume_at = "resume_at() one of them" if is_paused else "pause(), then resume_at() one of them"
        raise StepNotDefinedError(
            f"{workflow} cannot be {done}: its step {name!r} is not defined in {workflow.type}. "
            f"{runnable(workflow)} Ways out: {resume_at}, cancel(), or declare the step again; "
            f"next time leave a gravestone, {name} = removed_step(), where the step was."
        )
    return definition


def runnable(workflow: Workflow) -> str:
    """Say, for an error's message, at which steps a workflow can be resumed."""
    if not type(workflow)._geneva.is_startable:
        return f"This code declares no workflow class {workflow.type!r}."
    names = ", ".join(step.name for step in workflow.steps.runnable)
    if not names:
        return "This code declares no runnable step for it."
    return f"Steps that it can be resumed at: {names}."
