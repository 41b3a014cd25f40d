"""Whether what an operator asks for would be refused, without writing or locking anything.

Each function stands beside the control of its name and raises what that would raise; a test holds the two
together. What a workflow does meanwhile can still make the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geneva_drive.exceptions import InvalidStateError, StepNotDefinedError
from geneva_drive.lifecycle.controls.acting import wrong_state
from geneva_drive.lifecycle.controls.going_on import defined, runnable
from geneva_drive.states import ENDED, ExecutionState, WorkflowState

if TYPE_CHECKING:
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["cancel", "pause", "reschedule", "resume", "resume_at", "skip"]


def pause(workflow: Workflow) -> None:
    if workflow.state not in (WorkflowState.READY, WorkflowState.PERFORMING):
        raise wrong_state(workflow, "paused", "a ready or performing")


def resume(workflow: Workflow, active: StepExecution | None) -> None:
    if workflow.state == WorkflowState.PERFORMING and workflow.pause_requested_at is not None:
        return
    if workflow.state != WorkflowState.PAUSED:
        raise wrong_state(workflow, "resumed", "a paused")
    defined(workflow, _name(workflow, active), "resumed")


def resume_at(workflow: Workflow, step: str) -> None:
    if workflow.state != WorkflowState.PAUSED:
        raise wrong_state(workflow, "resumed at a step", "a paused")
    definition = workflow.steps.resolve(step)
    if definition is None or definition.removed:
        what = "not defined" if definition is None else "a removed step"
        raise StepNotDefinedError(
            f"{workflow} cannot be resumed at {step!r}, which is {what} in {workflow.type}. {runnable(workflow)}"
        )


def skip(workflow: Workflow, active: StepExecution | None) -> None:
    if workflow.state not in (WorkflowState.READY, WorkflowState.PAUSED):
        raise wrong_state(workflow, "moved past a step", "a ready or paused")
    defined(workflow, _name(workflow, active), "moved past it")


def cancel(workflow: Workflow) -> None:
    if workflow.state in ENDED:
        raise wrong_state(workflow, "canceled", "an ongoing")


def reschedule(workflow: Workflow, active: StepExecution | None) -> None:
    if active is None or active.state != ExecutionState.SCHEDULED:
        raise InvalidStateError(
            f"{workflow} is {workflow.state} and has no scheduled step that could be moved in time."
        )


def _name(workflow: Workflow, active: StepExecution | None) -> str | None:
    name: str | None = active.step_name if active is not None else workflow.next_step_name
    return name
