"""The clock of a test: moved on within a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TypeVar

from django.db import router

from geneva_drive import clock
from geneva_drive.exceptions import InvalidStateError, StepNotDefinedError
from geneva_drive.execution import executor
from geneva_drive.execution.runner import Runner
from geneva_drive.execution.signal_timeouts import expire_due
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState
from geneva_drive.testing.assertions import assert_cursor, assert_state, assert_step, assert_waiting_for

__all__ = [
    "travel",
    "POINTS",
    "ProcessKilled",
    "crash_at",
    "run_due",
    "run_iterations",
    "run_next_step",
    "run_step",
    "run_to_end",
    "assert_cursor",
    "assert_state",
    "assert_step",
    "assert_waiting_for",
]


@contextlib.contextmanager
def travel(delta: timedelta) -> Iterator[None]:
    """Move the library's one clock by ``delta`` within the block. Blocks add up."""
    clock._travelled += delta
    try:
        yield
    finally:
        clock._travelled -= delta


@contextlib.contextmanager
def due_at(execution: StepExecution, using: str) -> Iterator[None]:
    """Stand at the moment when the execution is due, if that is still ahead."""
    ahead = clock.utc(execution.scheduled_for) - clock.now(using)
    if ahead < timedelta(0):
        yield
        return
    # A little beyond: databases keep microseconds, and "due" is not "exactly now".
    with travel(ahead + timedelta(milliseconds=1)):
        yield


POINTS = ("prepared", "performed", "finalizing", "finalized")
"""Where ``crash_at`` can stop a process: the execution is in progress and its body not begun; the body has
run; its end is written and not committed; its end is committed."""


class ProcessKilled(BaseException):
    """What ``crash_at`` raises in place of the process's death; nothing records it."""

    simulates_death = True


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

    before = Runner.at_failpoint
    Runner.at_failpoint = die
    try:
        yield
    except ProcessKilled:
        return
    finally:
        Runner.at_failpoint = before
    raise AssertionError(f"The block did not come to the point {point!r}.")


W = TypeVar("W", bound=Workflow)

_MOST_STEPS = 10_000


class _OneStep(Runner):
    """Runs one body and leaves what follows scheduled."""

    def __init__(self, *, interruptions: bool = True, most_iterations: int | None = None) -> None:
        super().__init__(inline_continuation=False)
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
    with due_at(execution, using), _raising(raise_errors):
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


def _scheduled(workflow: Workflow, using: str) -> StepExecution | None:
    rows = StepExecution.objects.using(using).filter(
        workflow_id=workflow.pk, state=ExecutionState.SCHEDULED, on_hold=False
    )
    return rows.first()


@contextlib.contextmanager
def _raising(raise_errors: bool) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit):
        # Anything else is not a step's to keep: Ctrl-C, a test that fails, a process that is killed.
        if raise_errors:
            raise


# Read by pytest alone, so that other test runners can do without it.
pytest_plugins = ["geneva_drive.testing.fixtures"]
