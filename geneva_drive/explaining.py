"""Why a workflow is not moving, in one sentence."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.matchers import describe
from geneva_drive.lifecycle import outbox
from geneva_drive.lifecycle.locking import alias_of
from geneva_drive.models.process import Process
from geneva_drive.states import ExecutionState, Outcome, WorkflowState

if TYPE_CHECKING:
    from geneva_drive.models.operator_action import OperatorAction
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["explain"]

_STOPPING = (Outcome.FAILED, Outcome.WORKFLOW_PAUSED, Outcome.RECOVERED)
"""Outcomes after which a workflow may be paused by what happened in a step."""


def explain(workflow: Workflow) -> str:
    """Return one sentence that says why ``workflow`` is where it is and what will move it on.

    Looked up anew: the instance may be older than its row. A handful of queries by key.
    """
    using = alias_of(workflow)
    current = type(workflow)._base_manager.using(using).filter(pk=workflow.pk).first()
    if current is None:
        return f"Workflow {workflow.pk} is gone: its row has been deleted."
    return _Explanation(current, using).sentence()


class _Explanation:
    def __init__(self, workflow: Workflow, using: str) -> None:
        self.workflow = workflow
        self.using = using
        self.now = clock.now(using)

    def sentence(self) -> str:
        state = self.workflow.state
        if state in (WorkflowState.FINISHED, WorkflowState.CANCELED):
            return f"It has ended: it was {state} at {_time(self.workflow.transitioned_at)}."
        if state == WorkflowState.PAUSED:
            return self._paused()
        execution = self._active()
        if execution is None:
            return (
                f"It is {state} and has no execution that could move it, which should not be: cancel it and "
                "start another one."
            )
        if state == WorkflowState.PERFORMING:
            return self._performing(execution)
        return self._ready(execution)

    def _active(self) -> StepExecution | None:
        rows = self.workflow.executions.db_manager(self.using).filter(active_workflow=self.workflow.pk)
        execution: StepExecution | None = rows.first()
        return execution

    # -- ready

    def _ready(self, execution: StepExecution) -> str:
        missing = self._missing_code(execution)
        if missing:
            return missing
        if execution.state == ExecutionState.WAITING:
            return self._waiting(execution)
        name, due = execution.step_name, clock.utc(execution.scheduled_for)
        if due > self.now:
            return f"Its step {name!r} is not due until {_time(due)}."
        since = f"Its step {name!r} has been due since {_time(due)}"
        dispatcher = outbox.configured_dispatcher()
        if dispatcher.remembers:
            return f"{since}, {self._dispatch(execution)}"
        if not self._is_served(execution.queue):
            return (
                f"{since}, and no live process serves the queue {execution.queue!r}: start a worker for it."
            )
        return f"{since}, and waits for a free worker on the queue {execution.queue!r}."

    def _missing_code(self, execution: StepExecution) -> str | None:
        workflow, geneva = self.workflow, type(self.workflow)._geneva
        if not geneva.is_startable:
            what = f"This code declares no workflow class {workflow.type!r}"
        elif type(workflow).steps.resolve(execution.step_name) is None:
            what = f"This code declares no step {execution.step_name!r} in {workflow.type}"
        else:
            return None
        if execution.deferred_since is None:
            return f"{what}, so it stays where it is until code runs that does."
        until = clock.utc(execution.deferred_since) + settings.UNDEFINED_STEP_GRACE
        return (
            f"{what}: it is put off since {_time(execution.deferred_since)}, and pauses at {_time(until)} "
            "unless code runs that does."
        )

    def _waiting(self, execution: StepExecution) -> str:
        definition = type(self.workflow).steps.resolve(execution.step_name)
        if definition is None or definition.wait_for is None:
            return (
                f"Its step {execution.step_name!r} is parked since {_time(execution.waiting_since)} for a signal "
                "that this code does not wait for any more: housekeeping moves it on."
            )
        awaited = f"the signal {describe(definition.wait_for)!r}"
        sentence = (
            f"Its step {execution.step_name!r} waits for {awaited} since {_time(execution.waiting_since)}"
        )
        if execution.wait_deadline is not None:
            sentence += f", until {_time(execution.wait_deadline)} at the latest"
        return sentence + "."

    def _dispatch(self, execution: StepExecution) -> str:
        if execution.dispatched_at is None:
            return "and its dispatch is lost: housekeeping dispatches it again."
        again = clock.utc(execution.dispatched_at) + settings.OVERDUE_AFTER
        return (
            f"was dispatched at {_time(execution.dispatched_at)}, and no job has come for it; housekeeping "
            f"dispatches it again after {_time(again)}."
        )

    def _is_served(self, queue: str) -> bool:
        alive = Process.objects.using(self.using).filter(heartbeat_at__gte=self.now - settings.LEASE)
        # Few rows: one per process. A comma never occurs in a queue's name.
        return any(
            not queues or queue in queues.split(",") for queues in alive.values_list("queues", flat=True)
        )

    # -- performing

    def _performing(self, execution: StepExecution) -> str:
        running = f"Its step {execution.step_name!r} is in progress since {_time(execution.started_at)}"
        if execution.process_id is None:
            assert execution.started_at is not None
            stuck = clock.utc(execution.started_at) + settings.STUCK_AFTER
            return f"{running} in a process that is not known, and will be recovered after {_time(stuck)}."
        process = Process.objects.using(self.using).filter(pk=execution.process_id).first()
        if process is None:
            return f"{running} in a process that is gone, and will be recovered by the next housekeeping."
        where = f"{process.hostname}, process {process.pid}"
        dead = clock.utc(process.heartbeat_at) + settings.LEASE
        if dead <= self.now:
            return (
                f"{running} on {where}, which has not beaten since {_time(process.heartbeat_at)} and is held "
                "for dead: it will be recovered by the next housekeeping."
            )
        if self.now - clock.utc(process.heartbeat_at) > settings.LEASE / 2:
            return (
                f"{running} on {where}, which has not beaten since {_time(process.heartbeat_at)}; unless it "
                f"beats, it will be recovered after {_time(dead)}."
            )
        if self.workflow.pause_requested_at is not None:
            return f"{running} on {where}; it will pause after that step{self._by('pause')}."
        return f"{running} on {where}, which is alive."

    # -- paused

    def _paused(self) -> str:
        at = _time(self.workflow.transitioned_at)
        ended = self._stopped_by()
        by_hand = self._action("pause")
        if ended is None or (by_hand is not None and by_hand.created_at >= ended.finished_at):
            if by_hand is None:
                return f"It is paused since {at}."
            return f"It was paused{self._by('pause')} at {_time(by_hand.created_at)}."
        step = f"its step {ended.step_name!r}"
        reason = self._reason(ended)
        if ended.outcome == Outcome.WORKFLOW_PAUSED:
            return f"It was paused at {at} by {step}{reason}."
        if ended.error_class is None:
            return f"It was paused at {at} after {step} {ended.outcome}{reason}."
        message = " ".join((ended.error_message or "").split())
        told = f"{ended.error_class}: {message}" if message else ended.error_class
        return f"It was paused at {at} since {step} failed with {told[:300]}{reason}."

    def _stopped_by(self) -> StepExecution | None:
        if self._active() is not None:
            # Nothing has stopped it: what comes next is held back by somebody's pause.
            return None
        rows = self.workflow.executions.db_manager(self.using).filter(finished_at__isnull=False)
        latest: StepExecution | None = rows.latest_first().first()
        return latest if latest is not None and latest.outcome in _STOPPING else None

    def _action(self, action: str) -> OperatorAction | None:
        actions = self.workflow.operator_actions.db_manager(self.using).filter(action=action)
        latest: OperatorAction | None = actions.latest_first().first()
        return latest

    def _by(self, action: str) -> str:
        found = self._action(action)
        if found is None:
            return ""
        who = f" by {found.actor}" if found.actor else " by hand"
        return who + (f" ({found.reason})" if found.reason else "")

    @staticmethod
    def _reason(execution: StepExecution) -> str:
        notes = execution.metadata if isinstance(execution.metadata, dict) else {}
        return f" ({notes['reason']})" if notes.get("reason") else ""


def _time(value: datetime | None) -> str:
    if value is None:
        return "an unknown time"
    return clock.utc(value).isoformat(sep=" ", timespec="seconds")
