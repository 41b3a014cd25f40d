"""When a step is done with its signal.

A clean end (success, or a skip, whoever said so) consumes it. After a failure or a cancellation it stays claimed,
and whatever waits for such a signal next may have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geneva_drive.definition.decisions import Then
from geneva_drive.lifecycle import transitions
from geneva_drive.lifecycle.locking import alias_of, lock_attempts_with_signal
from geneva_drive.states import Outcome

if TYPE_CHECKING:
    from datetime import datetime

    from geneva_drive.definition.collection import StepDefinition
    from geneva_drive.definition.decisions import Decision
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["settle", "settle_passed_over"]


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
