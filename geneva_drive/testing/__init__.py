"""The testing kit: run workflows in the test's own thread and transaction, travel in time, let a process crash.

Nothing sleeps, and no worker is needed. The functions ``run_…`` run steps, ``assert_…`` compare a workflow's rows,
`travel` moves the clock and `crash_at` simulates a killed process. It is also a plug-in for pytest.
"""

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
from geneva_drive.testing.assertions import assert_cursor, assert_state, assert_step, assert_waiting_for

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

# A name that only pytest reads; it need not be installed.
pytest_plugins = ["geneva_drive.testing.fixtures"]

W = TypeVar("W", bound=Workflow)

_MOST_STEPS = 10_000


def run_next_step(workflow: W, *, raise_errors: bool = True, interruptions: bool = True) -> W:
    """Run the scheduled execution of ``workflow``, whether it is due or not; refresh the instance.

    Parameters
    ----------
    raise_errors
        Raise what the step raised, after it was recorded.
    interruptions
        False lets a resumable step exceed its ``max_iterations`` and ``max_runtime``.

    Raises
    ------
    InvalidStateError
        Nothing is scheduled: the workflow has ended, is paused, or waits for a signal.
    """
    _run_scheduled(workflow, raise_errors, _OneStep(interruptions=interruptions))
    return workflow


def run_to_end(
    workflow: W, *, raise_errors: bool = True, most: int = _MOST_STEPS, interruptions: bool = True
) -> W:
    """Run ``workflow`` until nothing is scheduled. Waits are skipped: three days take no time.

    It returns when the workflow waits for a signal: send the signal, and run it again. To let the wait time out,
    use `travel` and `run_due`.

    Parameters
    ----------
    most
        Steps after which to give up, since the workflow may loop.
    interruptions
        False lets a resumable step exceed its ``max_iterations`` and ``max_runtime``.

    Raises
    ------
    AssertionError
        It did not end within ``most`` steps.
    """
    for _ in range(most):
        if _scheduled(workflow) is None:
            workflow.refresh_from_db()
            return workflow
        run_next_step(workflow, raise_errors=raise_errors, interruptions=interruptions)
    raise AssertionError(f"{workflow} did not end within {most} steps; it is at {workflow.next_step_name}.")


def run_due(
    at: datetime | None = None,
    *,
    using: str | None = None,
    raise_errors: bool = True,
    most: int = _MOST_STEPS,
) -> int:
    """Run what is due, of all workflows, oldest first, and what becomes due by that; return the number of steps.

    Waits for signals time out, as they do in a worker.

    Parameters
    ----------
    at
        An aware moment, not in the past, to which the clock is moved. Default: now.
    """
    alias = using or router.db_for_write(Workflow)
    ahead = timedelta(0) if at is None else clock.utc(at) - clock.now(alias)
    performed = 0
    with travel(max(ahead, timedelta(0))):
        for _ in range(most):
            expire_due(alias)
            due = StepExecution.objects.using(alias).due(clock.now(alias))
            pk = due.order_by("priority", "scheduled_for", "pk").values_list("pk", flat=True).first()
            if pk is None:
                return performed
            with _raising(raise_errors):
                performed += 1  # also for a step that raises
                performed += executor.execute(pk, using=alias, runner=_OneStep()) - 1
    raise AssertionError(f"After {most} steps there are still executions due.")


def run_step(workflow: W, name: str, *, raise_errors: bool = True) -> W:
    """Run the step ``name`` of ``workflow`` alone, whatever step is next; refresh the instance.

    The workflow is moved there as an operator would do it: paused, and resumed at the step.

    Raises
    ------
    StepNotDefinedError
        There is no such runnable step.
    """
    names = [step.name for step in type(workflow).steps.runnable]
    if name not in names:
        raise StepNotDefinedError(f"{workflow} has no runnable step {name!r}. There are: {', '.join(names)}.")
    workflow.refresh_from_db()
    if workflow.state != "paused":
        workflow.pause(by="run_step")
    workflow.resume_at(name, by="run_step")
    return run_next_step(workflow, raise_errors=raise_errors)


def run_iterations(workflow: W, count: int, *, raise_errors: bool = True) -> W:
    """Run ``count`` items of the resumable step that is scheduled, and interrupt it; refresh the instance.

    Where the step's own limits interrupt it earlier, it is continued, and waits are skipped. When it ends before,
    the step that follows is not run.

    Raises
    ------
    InvalidStateError
        Nothing is scheduled, or a step that is not resumable.
    """
    name = None
    while count > 0:
        scheduled = _scheduled(workflow)
        step = type(workflow).steps.resolve(scheduled.step_name) if scheduled is not None else None
        if name is None and (step is None or not step.resumable):
            workflow.refresh_from_db()
            at = f"at {step.name!r}, which is not a resumable step" if step else "not scheduled"
            raise InvalidStateError(f"{workflow} is {workflow.state} and {at}.")
        if scheduled is None or step is None or step.name != (name or step.name):
            break
        name = step.name
        execution = _run_scheduled(workflow, raise_errors, _OneStep(most_iterations=count))
        count -= max(execution.iterations - scheduled.iterations, 1)
    return workflow


@contextlib.contextmanager
def travel(delta: timedelta) -> Iterator[None]:
    """Move the library's clock by ``delta`` within the block. Blocks add up."""
    clock._travelled += delta
    try:
        yield
    finally:
        clock._travelled -= delta


POINTS = ("prepared", "performed", "finalizing", "finalized")
"""Where ``crash_at`` can stop a process: the execution is in progress and its body has not started; the body has
run; its end is written and not committed; its end is committed."""


class ProcessKilled(BaseException):
    """What ``crash_at`` raises in place of the process's death; nothing records it."""

    simulates_death = True


@contextlib.contextmanager
def crash_at(point: str) -> Iterator[None]:
    """Let the process "die" at ``point`` within the block: see `POINTS`.

    The block ends there, without an exception, and the rows are as a killed process leaves them. To recover
    them, call ``geneva_drive.housekeeping.recover`` after a ``travel`` by more than ``STUCK_AFTER``.

    Raises
    ------
    AssertionError
        The block ended without passing the point.
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
    raise AssertionError(f"The block did not reach the point {point!r}.")


class _OneStep(Runner):
    """Runs one step and leaves what follows scheduled."""

    def __init__(self, *, interruptions: bool = True, most_iterations: int | None = None) -> None:
        super().__init__(inline_continuation=False)
        self.honours_limits = interruptions
        self.most_iterations = most_iterations


def _alias(workflow: Workflow) -> str:
    return workflow._state.db or router.db_for_write(Workflow)


def _scheduled(workflow: Workflow) -> StepExecution | None:
    rows = StepExecution.objects.using(_alias(workflow)).scheduled()
    return rows.filter(workflow_id=workflow.pk, on_hold=False).first()


def _run_scheduled(workflow: Workflow, raise_errors: bool, runner: Runner) -> StepExecution:
    """Run the scheduled execution at its time; return it as it is afterwards."""
    using = _alias(workflow)
    execution = _scheduled(workflow)
    if execution is None:
        workflow.refresh_from_db()
        raise InvalidStateError(f"{workflow} is {workflow.state} and has no scheduled execution to run.")
    # A little more than needed, since databases round to microseconds.
    ahead = clock.utc(execution.scheduled_for) - clock.now(using) + timedelta(milliseconds=1)
    with travel(max(ahead, timedelta(0))), _raising(raise_errors):
        executor.execute(execution.pk, using=using, runner=runner)
    workflow.refresh_from_db()
    execution.refresh_from_db()
    return execution


@contextlib.contextmanager
def _raising(raise_errors: bool) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit):
        # Ctrl-C, a failing test and a killed process are not the step's errors, and are always raised.
        if raise_errors:
            raise
