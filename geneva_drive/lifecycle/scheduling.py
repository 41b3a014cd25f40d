"""Build step executions. Nothing else creates them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition import options
from geneva_drive.definition.collection import StepDefinition
from geneva_drive.exceptions import StepNotDefinedError
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState


def build(
    workflow: Workflow,
    definition: StepDefinition,
    *,
    now: datetime,
    base: datetime | None = None,
    wait: timedelta | None = None,
    crashes: int = 0,
    reattempts: int = 0,
    on_hold: bool = False,
    signal_id: Any = None,
    trace: dict[str, str] | None = None,
    continues: StepExecution | None = None,
) -> StepExecution:
    """Make the next execution of a locked workflow, not written yet.

    Parameters
    ----------
    base
        The moment that waits count from. Default: now.
    wait
        How long until it is due. Default: what the step, the run or the class says.
    crashes, reattempts
        How many of each, in a row, this step had before this attempt.
    signal_id
        The key of the signal that the attempt before it had, for another attempt at the same step.
    trace
        The trace context that it runs in, as ``tracing.current()`` returns it.
    continues
        The locked execution of the same step from which a resumable one continues.

    Raises
    ------
    StepNotDefinedError
        ``definition`` is a gravestone: nothing ever creates an execution for one.
    StepConfigurationError
        The row's job options are invalid.
    """
    if definition.removed:
        raise StepNotDefinedError(
            f"{workflow}: {definition.name!r} is a removed step and cannot be scheduled."
        )
    own = workflow.job_options
    if own is not None:
        # start() checked them; a project may have saved others since.
        own = options.validate(own, f"{workflow}, job_options")
    merged = options.merge(type(workflow)._geneva.job_options, own, definition.options)
    due = (base or now) + (wait if wait is not None else merged.get("wait", timedelta(0)))
    not_before = merged.get("wait_until") if wait is None else None
    if not_before is not None:
        due = max(due, clock.utc(not_before))
    metadata: dict[str, Any] = {}
    if reattempts:
        metadata["reattempts"] = reattempts
    if trace:
        metadata["trace"] = trace
    execution = StepExecution(
        workflow_id=workflow.pk,
        step_name=definition.name,
        state=ExecutionState.SCHEDULED,
        queue=merged.get("queue") or settings.DEFAULT_QUEUE,
        priority=merged.get("priority", 0),
        scheduled_for=clock.local(due),
        on_hold=on_hold,
        crashes=crashes,
        signal_id=signal_id,
        metadata=metadata or None,
        created_at=clock.local(now),
    )
    execution._state.db = workflow._state.db
    if continues is not None and definition.resumable:
        execution.continues_from_id = continues.pk
        execution.cursor = continues.cursor
        execution.iterations = continues.iterations
        execution.iterations_total = continues.iterations_total
    return execution


def is_begun(execution: StepExecution) -> bool:
    """Whether there is anything to continue from: not after a first attempt that failed at once."""
    return execution.cursor is not None or execution.continues_from_id is not None
