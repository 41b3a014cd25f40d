"""Assertions about a workflow's rows. Their errors list the workflow's executions."""

from __future__ import annotations

from typing import Any, NoReturn

from geneva_drive.definition.matchers import describe
from geneva_drive.models.querysets import StepExecutionQuerySet
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState


def assert_state(workflow: Workflow, state: str) -> None:
    """Assert the state in the database, and refresh the instance."""
    workflow.refresh_from_db()
    if workflow.state != state:
        _fail(workflow, f" is {workflow.state}, not {state}")


def assert_step(workflow: Workflow, name: str, state: str, outcome: str | None = None) -> StepExecution:
    """Assert the state of a step's latest execution; return the execution."""
    execution = _executions(workflow).filter(step_name=name).latest_first().first()
    if execution is None:
        _fail(workflow, f" has no execution of {name!r}")
    if execution.state != state or (outcome is not None and execution.outcome != outcome):
        wanted = state if outcome is None else f"{state}/{outcome}"
        _fail(workflow, f": {name} is {execution.state}/{execution.outcome}, not {wanted}")
    return execution


def assert_cursor(workflow: Workflow, cursor: Any, *, iterations: int | None = None) -> StepExecution:
    """Assert the cursor of the workflow's latest execution, and how many items it has done; return it.

    Parameters
    ----------
    cursor
        As the loop set it. None: it has not started.
    """
    execution = _executions(workflow).latest_first().first()
    if execution is None:
        _fail(workflow, " has no execution")
    if execution.cursor != cursor:
        _fail(workflow, f": {execution.step_name} is at {execution.cursor!r}, not at {cursor!r}")
    if iterations is not None and execution.iterations != iterations:
        _fail(workflow, f": {execution.step_name} has done {execution.iterations} items, not {iterations}")
    return execution


def assert_waiting_for(workflow: Workflow, name: str) -> StepExecution:
    """Assert that the workflow waits for a signal; return its execution.

    Parameters
    ----------
    name
        The signal's name; for a matcher of your own its ``str()``, or the name of its class.
    """
    workflow.refresh_from_db()
    execution = _executions(workflow).filter(active_workflow=workflow.pk).first()
    if execution is None or execution.state != ExecutionState.WAITING:
        _fail(workflow, f" is {workflow.state} and waits for no signal")
    definition = type(workflow).steps.resolve(execution.step_name)
    matcher = definition.wait_for if definition is not None else None
    awaited = "nothing" if matcher is None else describe(matcher)
    if awaited != name:
        _fail(workflow, f" waits for {awaited} at its step {execution.step_name}, not for {name}")
    return execution


def _executions(workflow: Workflow) -> StepExecutionQuerySet[StepExecution]:
    return StepExecution.objects.using(workflow._state.db).filter(workflow_id=workflow.pk)


def _fail(workflow: Workflow, problem: str) -> NoReturn:
    executions = "\n".join(
        f"  {row.step_name}: {row.state}/{row.outcome} {row.error_message or ''}".rstrip()
        for row in _executions(workflow).latest_first().reverse()
    )
    raise AssertionError(f"{workflow}{problem}. Its executions:\n{executions}")
