"""For tests of workflows: run them here and now, without threads, in any kind of test case.

Everything works inside a plain ``TestCase``: nothing waits for a commit, nothing needs a worker, and no
process row is written. With ``pytest_plugins = ["geneva_drive.testing"]`` in the project's ``conftest.py``,
pytest has the fixtures ``geneva_run_to_end``, ``geneva_run_next_step``, ``geneva_run_due`` and
``geneva_travel``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import router

from geneva_drive import clock
from geneva_drive.definition.matchers import describe
from geneva_drive.exceptions import InvalidStateError, StepNotDefinedError
from geneva_drive.execution import executor, points
from geneva_drive.execution.runner import Runner
from geneva_drive.execution.timeouts import expire_due
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState

__all__ = [
    "POINTS",
    "ProcessKilled",
    "assert_cursor",
    "assert_state",
    "assert_step",
    "assert_waiting_for",
    "crash_at",
    "run_due",
    "run_iterations",
    "run_next_step",
    "run_step",
    "run_to_end",
    "travel",
]

W = TypeVar("W", bound=Workflow)

_MOST_STEPS = 10_000

POINTS = ("prepared", "performed", "finalizing", "finalized")
"""Where ``crash_at`` can stop a process: the execution is in progress and its body not begun; the body has
run; its end is written and not committed; its end is committed."""


class ProcessKilled(BaseException):
    """What ``crash_at`` raises in place of the process's death; nothing records it."""

    simulates_death = True


class _OneStep(Runner):
    """Runs one body and leaves what follows scheduled."""

    def __init__(self, *, interruptions: bool = True, most_iterations: int | None = None) -> None:
        super().__init__(straight_on=False)
        self.honours_limits = interruptions
        self.most_iterations = most_iterations


def run_next_step(workflow: W, *, raise_errors: bool = True, interruptions: bool = True) -> W:
    """Run the scheduled execution of ``workflow``, whether it is due or not; refresh the instance.

    Parameters
    ----------
    raise_errors
        Raise what the step raised, after it was recorded.
    interruptions
        False lets a resumable step run on beyond its ``max_iterations`` and ``max_runtime``.

    Raises
    ------
    InvalidStateError
        Nothing is scheduled: the workflow has ended, is paused, or waits for a signal.
    """
    _run_scheduled(workflow, raise_errors=raise_errors, runner=_OneStep(interruptions=interruptions))
    return workflow


def run_iterations(workflow: W, count: int, *, raise_errors: bool = True) -> W:
    """Run ``count`` items of the resumable step that is scheduled, and interrupt it; refresh the instance.

    Where the step gives way earlier, by its own limits, its successors go on, and waits are fast-forwarded.
    It may come to its end before: the step that follows is not run.

    Raises
    ------
    InvalidStateError
        Nothing is scheduled, or a step that is not resumable.
    """
    using = workflow._state.db or router.db_for_write(Workflow)
    name = None
    while count > 0:
        scheduled = _scheduled(workflow, using)
        step = type(workflow).steps.resolve(scheduled.step_name) if scheduled is not None else None
        if name is None and (step is None or not step.resumable):
            workflow.refresh_from_db()
            at = f"at {step.name!r}, which is not a resumable step" if step else "not scheduled"
            raise InvalidStateError(f"{workflow} is {workflow.state} and {at}.")
        if step is None or step.name != (name or step.name):
            break
        name = step.name
        runner = _OneStep(most_iterations=count)
        execution = _run_scheduled(workflow, raise_errors=raise_errors, runner=runner)
        before = scheduled.iterations if scheduled is not None else 0
        count -= max(execution.iterations - before, 1)
    return workflow


def _run_scheduled(workflow: Workflow, *, raise_errors: bool, runner: Runner) -> StepExecution:
    """Run the scheduled execution; return it as it is then."""
    using = workflow._state.db or router.db_for_write(Workflow)
    execution = _scheduled(workflow, using)
    if execution is None:
        workflow.refresh_from_db()
        raise InvalidStateError(f"{workflow} is {workflow.state} and has no scheduled execution to run.")
    with _due_at(execution, using), _raising(raise_errors):
        executor.execute(execution.pk, using=using, runner=runner)
    workflow.refresh_from_db()
    execution.refresh_from_db()
    return execution


def run_to_end(
    workflow: W, *, raise_errors: bool = True, most: int = _MOST_STEPS, interruptions: bool = True
) -> W:
    """Run ``workflow`` until nothing is scheduled. Waits are fast-forwarded: three days take no time.

    It stops where the workflow waits for a signal: send it, and run on. To let the wait time out, `travel` and
    `run_due`.

    Parameters
    ----------
    most
        Bodies after which a loop is suspected.
    interruptions
        False lets a resumable step run on beyond its ``max_iterations`` and ``max_runtime``.

    Raises
    ------
    AssertionError
        It did not come to an end within ``most`` bodies.
    """
    using = workflow._state.db or router.db_for_write(Workflow)
    for _ in range(most):
        if _scheduled(workflow, using) is None:
            workflow.refresh_from_db()
            return workflow
        run_next_step(workflow, raise_errors=raise_errors, interruptions=interruptions)
    raise AssertionError(
        f"{workflow} did not come to an end within {most} steps; it is at {workflow.next_step_name}."
    )


def run_due(
    at: datetime | None = None,
    *,
    using: str | None = None,
    raise_errors: bool = True,
    most: int = _MOST_STEPS,
) -> int:
    """Run what is due, of all workflows, oldest first, with what that makes due; return how many bodies ran.

    Signals whose timeout has passed are missed then, as a worker would find them.

    Parameters
    ----------
    at
        Aware moment, not in the past; what is due until then is run with the clock at it. Default: now.
    """
    alias = using or router.db_for_write(Workflow)
    ahead = timedelta(0) if at is None else clock.utc(at) - clock.now(alias)
    performed = 0
    with travel(max(ahead, timedelta(0))):
        for _ in range(most):
            expire_due(alias)
            due = (
                StepExecution.objects.using(alias)
                .due(clock.now(alias))
                .order_by("priority", "scheduled_for", "pk")
            )
            pk = due.values_list("pk", flat=True).first()
            if pk is None:
                return performed
            with _raising(raise_errors):
                performed += 1  # also of a body that raises
                performed += executor.execute(pk, using=alias, runner=_OneStep()) - 1
    raise AssertionError(f"Still something is due after {most} steps.")


def run_step(workflow: W, name: str, *, raise_errors: bool = True) -> W:
    """Run the step ``name`` of ``workflow`` alone, wherever the workflow stands; refresh the instance.

    The workflow is moved there by hand, as an operator would: paused, and resumed at the step.

    Raises
    ------
    StepNotDefinedError
        There is no such runnable step.
    """
    if name not in {step.name for step in type(workflow).steps.runnable}:
        names = ", ".join(step.name for step in type(workflow).steps.runnable)
        raise StepNotDefinedError(f"{workflow} has no runnable step {name!r}. There are: {names}.")
    workflow.refresh_from_db()
    if workflow.state != "paused":
        workflow.pause(by="run_step")
    workflow.resume_at(name, by="run_step")
    return run_next_step(workflow, raise_errors=raise_errors)


@contextlib.contextmanager
def travel(delta: timedelta) -> Iterator[None]:
    """Move the library's one clock by ``delta`` within the block. Blocks add up."""
    clock._travelled += delta
    try:
        yield
    finally:
        clock._travelled -= delta


@contextlib.contextmanager
def crash_at(point: str) -> Iterator[None]:
    """Let the process "die" at ``point`` within the block: see `POINTS`.

    The block ends there, quietly; rows stay as a killed process leaves them. What comes next is up to
    recovery: ``geneva_drive.housekeeping.recover`` after a ``travel`` beyond ``STUCK_AFTER``.

    Raises
    ------
    AssertionError
        The block came to its end without passing the point.
    """
    if point not in POINTS:
        raise ValueError(f"{point!r} is no point to crash at. There are: {', '.join(POINTS)}.")

    def die(reached: str) -> None:
        if reached == point:
            raise ProcessKilled(point)

    before = points.at_point
    points.at_point = die
    try:
        yield
    except ProcessKilled:
        return
    finally:
        points.at_point = before
    raise AssertionError(f"The block did not come to the point {point!r}.")


def assert_state(workflow: Workflow, state: str) -> None:
    """Assert the state that the database holds, and refresh the instance."""
    workflow.refresh_from_db()
    if workflow.state != state:
        raise AssertionError(
            f"{workflow} is {workflow.state}, not {state}. Its executions:\n{_history(workflow)}"
        )


def assert_step(workflow: Workflow, name: str, state: str, outcome: str | None = None) -> StepExecution:
    """Assert how the latest execution of a step stands; return it."""
    latest = _executions(workflow).filter(step_name=name).order_by("-pk")
    execution: StepExecution | None = latest.first()
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
    execution: StepExecution | None = _executions(workflow).latest_first().first()
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
    """Assert that the workflow stands parked for a signal; return its execution.

    Parameters
    ----------
    name
        The signal's name, or for an own matcher what its ``str()`` says, or the name of its class.
    """
    workflow.refresh_from_db()
    execution: StepExecution | None = _executions(workflow).filter(active_workflow=workflow.pk).first()
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


def _executions(workflow: Workflow) -> Any:
    return StepExecution.objects.using(workflow._state.db).filter(workflow_id=workflow.pk)


def _history(workflow: Workflow) -> str:
    rows = _executions(workflow).order_by("pk")
    return "\n".join(
        f"  {row.step_name}: {row.state}/{row.outcome}"
        + (f" {row.error_message}" if row.error_message else "")
        for row in rows
    )


def _scheduled(workflow: Workflow, using: str) -> StepExecution | None:
    rows = StepExecution.objects.using(using).filter(
        workflow_id=workflow.pk, state=ExecutionState.SCHEDULED, held=False
    )
    return rows.first()


@contextlib.contextmanager
def _due_at(execution: StepExecution, using: str) -> Iterator[None]:
    """Stand at the moment when the execution is due, if that is still ahead."""
    ahead = clock.utc(execution.scheduled_for) - clock.now(using)
    if ahead < timedelta(0):
        yield
        return
    # A little beyond: databases keep microseconds, and "due" is not "exactly now".
    with travel(ahead + timedelta(milliseconds=1)):
        yield


@contextlib.contextmanager
def _raising(raise_errors: bool) -> Iterator[None]:
    try:
        yield
    except ProcessKilled:
        raise
    except BaseException:
        if raise_errors:
            raise


with contextlib.suppress(ImportError):
    import pytest

    @pytest.fixture(name="geneva_travel")
    def _travel_fixture() -> Iterator[Any]:
        """A function that moves the clock until the end of the test: ``geneva_travel(timedelta(days=3))``."""
        with contextlib.ExitStack() as stack:
            yield lambda delta: stack.enter_context(travel(delta))

    @pytest.fixture(name="geneva_run_to_end")
    def _run_to_end_fixture() -> Any:
        """`run_to_end`."""
        return run_to_end

    @pytest.fixture(name="geneva_run_next_step")
    def _run_next_step_fixture() -> Any:
        """`run_next_step`."""
        return run_next_step

    @pytest.fixture(name="geneva_run_due")
    def _run_due_fixture() -> Any:
        """`run_due`."""
        return run_due
