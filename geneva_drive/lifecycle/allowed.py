"""What may be done to a workflow by hand: in which states, and why not.

A control asks it of the locked row; whoever wants to say beforehand what a control would refuse asks it of a row
that nobody has locked. What the workflow does meanwhile can then still make the difference.
"""

from __future__ import annotations

from geneva_drive.definition.collection import StepDefinition
from geneva_drive.exceptions import InvalidStateError, StepNotDefinedError
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ENDED, ONGOING, ExecutionState, WorkflowState

POSSIBLE: dict[str, tuple[WorkflowState, ...]] = {
    "pause": (WorkflowState.READY, WorkflowState.PERFORMING),
    # And what is performing and asked to pause: that is withdrawn.
    "resume": (WorkflowState.PAUSED,),
    "resume_at": (WorkflowState.PAUSED,),
    "skip": (WorkflowState.READY, WorkflowState.PAUSED),
    "cancel": ONGOING,
    "signal": ONGOING,
    # If its step is scheduled, and not waiting.
    "reschedule": (WorkflowState.READY, WorkflowState.PAUSED),
}
"""The states in which a control may have something to do."""

_WORDS = {
    "pause": ("paused", "a ready or performing"),
    "resume": ("resumed", "a paused"),
    "resume_at": ("resumed at a step", "a paused"),
    "skip": ("moved past a step", "a ready or paused"),
    "cancel": ("canceled", "an ongoing"),
}


def pause(workflow: Workflow) -> None:
    """Raise ``InvalidStateError`` unless it can be paused."""
    _check_state(workflow, "pause")


def withdraws_a_pause(workflow: Workflow) -> bool:
    """Whether to resume it is to withdraw a pause that was asked for while a step is in flight."""
    return workflow.state == WorkflowState.PERFORMING and workflow.pause_requested_at is not None


def resume(workflow: Workflow, active: StepExecution | None) -> StepDefinition | None:
    """Return the step that it would go on with, if it stands at one.

    Raises
    ------
    InvalidStateError, StepNotDefinedError
        It cannot be resumed.
    """
    if withdraws_a_pause(workflow):
        return None
    _check_state(workflow, "resume")
    return defined(workflow, _name(workflow, active), "resumed")


def resume_at(workflow: Workflow, step: str | None) -> StepDefinition | None:
    """Return the step that it would be resumed at; None asks for its state alone.

    Raises
    ------
    InvalidStateError, StepNotDefinedError
        It cannot be resumed there.
    """
    _check_state(workflow, "resume_at")
    if step is None:
        return None
    definition = workflow.steps.resolve(step)
    if definition is None or definition.removed:
        what = "not defined" if definition is None else "a removed step"
        raise StepNotDefinedError(
            f"{workflow} cannot be resumed at {step!r}, which is {what} in {workflow.type}. {runnable(workflow)}"
        )
    return definition


def skip(workflow: Workflow, active: StepExecution | None) -> StepDefinition | None:
    """Return the step that it would be moved past, if it stands at one.

    Raises
    ------
    InvalidStateError, StepNotDefinedError
        It cannot be moved past it.
    """
    _check_state(workflow, "skip")
    return defined(workflow, _name(workflow, active), "moved past it")


def cancel(workflow: Workflow) -> None:
    """Raise ``InvalidStateError`` if it has ended."""
    if workflow.state in ENDED:
        raise _wrong_state(workflow, "cancel")


def reschedule(workflow: Workflow, active: StepExecution | None) -> StepExecution:
    """Return the execution that would be moved in time. Raises ``InvalidStateError`` when none is scheduled."""
    if active is None or active.state != ExecutionState.SCHEDULED:
        raise InvalidStateError(
            f"{workflow} is {workflow.state} and has no scheduled step that could be moved in time."
        )
    return active


def check(control: str, workflow: Workflow, active: StepExecution | None, *, step: str | None = None) -> None:
    """Raise what the control of this name would, as far as that can be told without its locks.

    Parameters
    ----------
    active
        The workflow's active execution.
    step
        For ``resume_at``: where. None asks for the state alone.
    """
    if control == "pause":
        pause(workflow)
    elif control == "resume":
        resume(workflow, active)
    elif control == "resume_at":
        resume_at(workflow, step)
    elif control == "skip":
        skip(workflow, active)
    elif control == "cancel":
        cancel(workflow)
    elif control == "reschedule":
        reschedule(workflow, active)
    else:
        raise ValueError(f"{control!r} is no control.")


def _check_state(workflow: Workflow, control: str) -> None:
    if workflow.state not in POSSIBLE[control]:
        raise _wrong_state(workflow, control)


def _wrong_state(workflow: Workflow, control: str) -> InvalidStateError:
    done, wanted = _WORDS[control]
    return InvalidStateError(
        f"{workflow} is {workflow.state} and cannot be {done}: only {wanted} workflow can."
    )


def _name(workflow: Workflow, active: StepExecution | None) -> str | None:
    name: str | None = active.step_name if active is not None else workflow.next_step_name
    return name


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
