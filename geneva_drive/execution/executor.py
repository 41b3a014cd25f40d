"""One execution through its three phases: prepare, perform, finalize.

``execute`` is where every dispatcher ends; it is safe to call twice, since only a row that is still
scheduled is begun.
"""

from __future__ import annotations

from typing import Any

from django.db import router

from geneva_drive.execution import failing, points
from geneva_drive.execution.atomic import perform_atomic
from geneva_drive.execution.finalizing import finalize
from geneva_drive.execution.giving_back import give_back
from geneva_drive.execution.performing import Performance, perform
from geneva_drive.execution.preparing import prepare
from geneva_drive.execution.runner import Runner
from geneva_drive.models.step_execution import StepExecution

__all__ = ["execute", "run"]


def execute(execution_id: Any, *, using: str | None = None, runner: Runner | None = None) -> int:
    """Run a scheduled execution that is due, and what follows it as far as the runner goes on.

    Parameters
    ----------
    execution_id
        The only thing that crosses the boundary of a dispatcher.

    Returns
    -------
    int
        How many bodies were run. Zero for a duplicate or early delivery, which change nothing.

    Raises
    ------
    BaseException
        What a step raised, after it was recorded and committed, and logged. Not when a policy dealt with it.
    """
    alias = using or router.db_for_write(StepExecution)
    runner = runner or Runner()
    performance = prepare(execution_id, using=alias, runner=runner)
    return run(performance, runner) if performance is not None else 0


def run(performance: Performance, runner: Runner) -> int:
    """Perform and finalize an execution in progress, and what is handed over."""
    performed = 0
    following: Performance | None = performance
    while following is not None:
        current = following
        if not runner.may_begin():
            give_back(current)
            return performed
        runner.hold(current.token)
        try:
            points.reach("prepared")
            performed += 1
            if current.definition is not None and current.definition.atomic and current.error is None:
                following, ending = perform_atomic(current, runner)
            else:
                ending = perform(current, runner)
                points.reach("performed")
                following = finalize(current, ending, runner)
            points.reach("finalized")
        finally:
            runner.let_go(current.token)
        if ending.error is not None:
            _tell(current, runner)
            # A policy has dealt with it. Whoever claims what follows goes on with it.
            return performed
    return performed


def _tell(performance: Performance, runner: Runner) -> None:
    """Report what a step raised, and raise it to the runner, unless a policy says otherwise."""
    failure = performance.failure
    assert failure is not None
    if failure.reported is not None:
        failing.report(performance, failure.reported)
    if failure.raised is not None:
        # So that the runner knows that it has been logged.
        runner.raised = failure.raised
        raise failure.raised
