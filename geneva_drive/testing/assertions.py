"""What a test expects of a workflow's rows; an error tells how they came to be as they are."""

from __future__ import annotations

from typing import Any

from geneva_drive.definition.matchers import describe
from geneva_drive.models.querysets import StepExecutionQuerySet
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState


def assert_state(workflow: Workflow, state: str) -> None:
    """Assert the state that the database holds, and refresh the instance."""
    workflow.refresh_from_db()
    if workflow.state != state:
        raise AssertionError(
            f"{workflow} is {workflow.state}, not {state}. Its executions:\n{_history(workflow)}"
        )


def assert_step(workflow: Workflow, name: str, state: str, outcome: str | None = None) -> StepExecution:
    """Assert how the latest execution of a step stands; return it."""
    execution = _executions(workflow).filter(step_name=name).latest_first().first()
    if execution is None:
        raise AssertionError(
            f"{workflow} has no execution of {name!r}. Its executions:\n{_history(workflow)}"
        )
    if execution.state != state or (outcome is not None and execution.outcome != outcome):
        wanted = state if outcome is None else f"{state}/{outcome}"
        raise AssertionError(
            f"{workflow}: {name} is {execution.state}/{execution.outcome}, not {wanted}. Its executions:\n"
            f"{_history(workflow)}"
        )
    return execution


def assert_cursor(workflow: Workflow, cursor: Any, *, iterations: int | None = None) -> StepExecution:
    """Assert where the workflow's resumable step stands, and how many items it has done; return its row.

    The row is the one that is scheduled or in progress, or else the last one that was.

    Parameters
    ----------
    cursor
        As the loop set it. None: it has not begun.
    """
    execution = _executions(workflow).latest_first().first()
    if execution is None:
        raise AssertionError(f"{workflow} has no execution.")
    if execution.cursor != cursor:
        raise AssertionError(
            f"{workflow}: {execution.step_name} stands at {execution.cursor!r}, not at {cursor!r}. "
            f"Its executions:\n{_history(workflow)}"
        )
    if iterations is not None and execution.iterations != iterations:
        raise AssertionError(
            f"{workflow}: {execution.step_name} has done {execution.iterations} items, not {iterations}. "
            f"Its executions:\n{_history(workflow)}"
        )
    return execution


def assert_waiting_for(workflow: Workflow, name: str) -> StepExecution:
    """Assert that the workflow stands waiting for a signal; return its execution.

    Parameters
    ----------
    name
        The signal's name, or for an own matcher what its ``str()`` says, or the name of its class.
    """
    workflow.refresh_from_db()
    execution = _executions(workflow).filter(active_workflow=workflow.pk).first()
    if execution is None or execution.state != ExecutionState.WAITING:
        raise AssertionError(
            f"{workflow} is {workflow.state} and waits for no signal. Its executions:\n{_history(workflow)}"
        )
    definition = type(workflow).steps.resolve(execution.step_name)
    matcher = definition.wait_for if definition is not None else None
    awaited = "nothing" if matcher is None else describe(matcher)
    if awaited != name:
        raise AssertionError(
            f"{workflow} waits for {awaited} at its step {execution.step_name}, not for {name}."
        )
    return execution


def _executions(workflow: Workflow) -> StepExecutionQuerySet[StepExecution]:
    return StepExecution.objects.using(workflow._state.db).filter(workflow_id=workflow.pk)


def _history(workflow: Workflow) -> str:
    rows = _executions(workflow).latest_first().reverse()
    return "\n".join(
        f"  {row.step_name}: {row.state}/{row.outcome}"
        + (f" {row.error_message}" if row.error_message else "")
        for row in rows
    )
