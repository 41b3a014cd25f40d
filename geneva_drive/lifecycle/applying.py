"""Apply a decision: end an execution, settle its signal, and move its workflow to what follows."""

from __future__ import annotations

import logging
from dataclasses import replace

from geneva_drive.definition.collection import StepDefinition
from geneva_drive.definition.decisions import Decision, Then
from geneva_drive.lifecycle import error_text, scheduling, transitions
from geneva_drive.lifecycle.locking import lock_attempts_with_signal
from geneva_drive.lifecycle.unit_of_work import UnitOfWork, flush
from geneva_drive.logs import about
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import Outcome, WorkflowState

logger = logging.getLogger("geneva_drive.lifecycle")

_ENDINGS = {
    Then.PAUSE: WorkflowState.PAUSED,
    Then.CANCEL: WorkflowState.CANCELED,
    Then.FINISH: WorkflowState.FINISHED,
}


def apply_decision(unit: UnitOfWork, decision: Decision) -> None:
    """End the unit's execution, which is written at once, and move its workflow.

    What comes next is the unit's ``following``, not written yet: the caller may claim it instead.
    """
    workflow, execution = unit.workflow, unit.execution
    stop = workflow.pause_requested_at is not None
    next_step, following, failed = None, None, False
    if decision.then in (Then.NEXT, Then.SAME):
        next_step = _next_step(execution, decision, workflow)
    if next_step is not None:
        try:
            following = _build(unit, next_step, decision, on_hold=stop)
        except Exception as error:
            # Options that a person or other code wrote. The step that ended must be recorded all the same, and
            # what cannot be scheduled must not stop others.
            extra = about(workflow, execution)
            logger.exception("%s: its step %s could not be scheduled.", workflow, next_step.name, extra=extra)
            failed = True
            record = error_text.record(error)
            notes = {**decision.notes, "not_scheduled": f"{record.class_name}: {record.message}"}
            decision = replace(decision, notes=notes)
    transitions.end(unit, decision)
    # Before the next row is written: the database allows one active execution.
    flush(execution)
    if decision.then is Then.NOTHING:
        return
    _settle(unit, decision)
    if decision.then in _ENDINGS:
        state = _ENDINGS[decision.then]
        transitions.move(unit, state, execution.step_name if state == WorkflowState.PAUSED else None)
    elif next_step is None:
        # Also while a pause is requested: there is nothing left to pause.
        transitions.move(unit, WorkflowState.FINISHED, None)
    else:
        state = WorkflowState.PAUSED if stop or failed else WorkflowState.READY
        transitions.move(unit, state, next_step.name)
        unit.following = following


def _next_step(execution: StepExecution, decision: Decision, workflow: Workflow) -> StepDefinition | None:
    steps = workflow.steps
    if decision.then is Then.SAME:
        same = steps.resolve(execution.step_name)
        if same is not None and not same.removed:
            return same
    return steps.next_after(execution.step_name)


def _build(
    unit: UnitOfWork, next_step: StepDefinition, decision: Decision, *, on_hold: bool
) -> StepExecution:
    execution = unit.execution
    repeats = decision.then is Then.SAME
    # Counts, signal and cursor belong to a step under whatever name; past a gravestone another one follows.
    same = repeats and execution.step_name in (next_step.name, *next_step.formerly)
    resumes = same and not decision.rewind and (decision.gives_way or scheduling.is_begun(execution))
    return scheduling.build(
        unit.workflow,
        next_step,
        now=unit.now,
        wait=decision.wait if repeats else None,
        crashes=decision.crashes if same else 0,
        reattempts=decision.reattempts if same else 0,
        on_hold=on_hold,
        signal_id=execution.signal_id if same else None,
        continues=execution if resumes else None,
        trace=execution.trace,
    )


def _settle(unit: UnitOfWork, decision: Decision) -> None:
    """Consume the signals that an execution which was just ended is done with.

    A clean end (success, or a skip of any kind) consumes its signal. After a failure or a cancellation the signal
    stays claimed, and the next step that waits for such a signal may have it.
    """
    execution = unit.execution
    definition = unit.workflow.steps.resolve(execution.step_name)
    if decision.outcome == Outcome.SKIPPED and (
        definition is None or definition.removed or definition.wait_for is not None
    ):
        settle_passed_over(unit, execution.step_name, definition)
    if execution.signal_id is None:
        return
    clean = decision.outcome in (Outcome.SUCCESS, Outcome.SKIPPED)
    if decision.then is Then.SAME and (definition is None or definition.removed):
        clean = True  # There is no next attempt: the step became a gravestone meanwhile.
    if clean:
        transitions.consume(unit, pk=execution.signal_id)


def settle_passed_over(unit: UnitOfWork, step_name: str, definition: StepDefinition | None) -> None:
    """Consume what earlier attempts at a step left claimed, since nobody will attempt it again."""
    names = [step_name] if definition is None else [definition.name, *definition.formerly]
    if keys := lock_attempts_with_signal(unit.workflow, names):
        transitions.consume(unit, pk__in=keys)
