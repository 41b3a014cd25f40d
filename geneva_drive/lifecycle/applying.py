"""When a step is done with its signal.

A clean end (success, or a skip, whoever said so) consumes it. After a failure or a cancellation it stays claimed,
and whatever waits for such a signal next may have it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime

from geneva_drive.definition.collection import StepDefinition
from geneva_drive.definition.decisions import Decision, Then
from geneva_drive.events import Pending
from geneva_drive.lifecycle import error_text, scheduling, transitions
from geneva_drive.lifecycle.locking import alias_of, lock_attempts_with_signal
from geneva_drive.logs import about
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import Outcome, WorkflowState


def settle(workflow: Workflow, execution: StepExecution, decision: Decision, *, now: datetime) -> None:
    """Consume what an execution that was just ended is done with; both rows are locked."""
    definition = workflow.steps.resolve(execution.step_name)
    if decision.outcome == Outcome.SKIPPED and (
        definition is None or definition.removed or definition.wait_for is not None
    ):
        settle_passed_over(workflow, execution.step_name, definition, now=now)
    if execution.signal_id is None:
        return
    clean = decision.outcome in (Outcome.SUCCESS, Outcome.SKIPPED)
    if decision.then is Then.SAME and (definition is None or definition.removed):
        clean = True  # There is no next attempt: the step became a gravestone meanwhile.
    if clean:
        signals = workflow.signals.db_manager(alias_of(workflow))
        transitions.consume(signals.filter(pk=execution.signal_id), now=now)


def settle_passed_over(
    workflow: Workflow, step_name: str, definition: StepDefinition | None, *, now: datetime
) -> None:
    """Consume what earlier attempts at a step left claimed, for nobody will attempt it again."""
    names = [step_name] if definition is None else [definition.name, *definition.formerly]
    keys = lock_attempts_with_signal(workflow, names)
    if keys:
        signals = workflow.signals.db_manager(alias_of(workflow))
        transitions.consume(signals.filter(pk__in=keys), now=now)


logger = logging.getLogger("geneva_drive.lifecycle")

_ENDINGS = {
    Then.PAUSE: WorkflowState.PAUSED,
    Then.CANCEL: WorkflowState.CANCELED,
    Then.FINISH: WorkflowState.FINISHED,
}


def apply_decision(
    workflow: Workflow, execution: StepExecution, decision: Decision, *, now: datetime, pending: Pending
) -> StepExecution | None:
    """End ``execution`` and move its workflow; both are locked and active.

    Returns
    -------
    StepExecution or None
        What comes next, not yet written: the caller either claims it in the same commit or writes it as
        scheduled and dispatches it. The workflow is not flushed for the same reason.
    """
    following, built, problem = None, None, None
    stop = workflow.pause_requested_at is not None
    if decision.then in (Then.NEXT, Then.SAME):
        following = _following(workflow, execution, decision)
    if following is not None:
        try:
            built = _build(workflow, execution, following, decision, now=now, on_hold=stop)
        except Exception as error:
            # Options that were written by hand, or by other code. The step that ended must be recorded all
            # the same, and what cannot be scheduled must not stop others.
            logger.exception(
                "%s: its step %s could not be scheduled.",
                workflow,
                following.name,
                extra=about(workflow, execution),
            )
            problem = error_text.record(error)
            decision = replace(
                decision,
                notes={**decision.notes, "not_scheduled": f"{problem.class_name}: {problem.message}"},
            )
    transitions.end(execution, decision, now=now)
    # Before the next row is written: the database allows one active execution.
    transitions.flush(execution)
    transitions.finalized(workflow, execution, pending)
    if decision.then is Then.NOTHING:
        return None
    settle(workflow, execution, decision, now=now)
    if decision.then in _ENDINGS:
        state = _ENDINGS[decision.then]
        pointed_at = execution.step_name if state == WorkflowState.PAUSED else None
        transitions.move(workflow, state, now=now, next_step_name=pointed_at, pending=pending)
        return None
    if following is None:
        # Also while a pause is asked for: there is nothing left to hold.
        transitions.move(workflow, WorkflowState.FINISHED, now=now, next_step_name=None, pending=pending)
        return None
    transitions.move(
        workflow,
        WorkflowState.PAUSED if stop or problem is not None else WorkflowState.READY,
        now=now,
        next_step_name=following.name,
        pending=pending,
    )
    return built


def _build(
    workflow: Workflow,
    execution: StepExecution,
    following: StepDefinition,
    decision: Decision,
    *,
    now: datetime,
    on_hold: bool,
) -> StepExecution:
    repeats = decision.then is Then.SAME
    # Counts belong to a step under whatever name; past a gravestone another one follows.
    same = repeats and following is workflow.steps.resolve(execution.step_name)
    return scheduling.build(
        workflow,
        following,
        now=now,
        wait=decision.wait if repeats else None,
        crashes=decision.crashes if same else 0,
        reattempts=decision.reattempts if same else 0,
        on_hold=on_hold,
        # Another attempt at the same step sees the same signal.
        signal_id=execution.signal_id if same else None,
        continues=execution if _goes_on_from(execution, following, decision) else None,
        trace=execution.trace,
    )


def _goes_on_from(execution: StepExecution, following: StepDefinition, decision: Decision) -> bool:
    """Whether a resumable step is to go on where this execution stopped."""
    if decision.then is not Then.SAME or decision.rewind:
        return False
    if execution.step_name not in (following.name, *following.formerly):
        return False  # it was buried meanwhile, and another one follows
    return decision.gives_way or scheduling.is_begun(execution)


def _following(workflow: Workflow, execution: StepExecution, decision: Decision) -> StepDefinition | None:
    steps = type(workflow).steps
    if decision.then is Then.SAME:
        same = steps.resolve(execution.step_name)
        if same is not None and not same.removed:
            return same
    return steps.next_after(execution.step_name)
