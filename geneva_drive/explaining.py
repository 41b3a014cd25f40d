"""Why a workflow is not moving, in one sentence."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.matchers import describe
from geneva_drive.lifecycle import outbox
from geneva_drive.lifecycle.locking import alias_of
from geneva_drive.models.process import Process
from geneva_drive.states import ENDED, ExecutionState, Outcome, WorkflowState

if TYPE_CHECKING:
    from geneva_drive.models.operator_action import OperatorAction
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["explain"]

_STOPPING = (Outcome.FAILED, Outcome.WORKFLOW_PAUSED, Outcome.RECOVERED)
"""Outcomes after which a workflow may be paused by what happened in a step."""


def explain(workflow: Workflow) -> str:
    """Return one sentence that says why ``workflow`` is where it is and what will move it on.

    In the language that is active. Looked up anew: the instance may be older than its row. A handful of queries
    by key.
    """
    using = alias_of(workflow)
    current = type(workflow)._base_manager.using(using).filter(pk=workflow.pk).first()
    if current is None:
        return _("Workflow %(key)s is gone: its row has been deleted.") % {"key": workflow.pk}
    return _Explanation(current, using).sentence()


class _Explanation:
    """Whole sentences, never put together from halves: other languages have other orders."""

    def __init__(self, workflow: Workflow, using: str) -> None:
        self.workflow = workflow
        self.using = using
        self.now = clock.now(using)

    def sentence(self) -> str:
        state = WorkflowState(self.workflow.state)
        if state in ENDED:
            return _("It has ended: it was %(state)s at %(time)s.") % {
                "state": state.label,
                "time": _time(self.workflow.transitioned_at),
            }
        if state == WorkflowState.PAUSED:
            return self._paused()
        execution = self._active()
        if execution is None:
            return _(
                "It is %(state)s and has no execution that could move it, which should not be: cancel it and "
                "start another one."
            ) % {"state": state.label}
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
        due = clock.utc(execution.scheduled_for)
        words = {"step": execution.step_name, "due": _time(due), "queue": execution.queue}
        if due > self.now:
            return _("Its step '%(step)s' is not due until %(due)s.") % words
        if outbox.configured_dispatcher().remembers:
            return self._dispatched(execution, words)
        if not self._is_served(execution.queue):
            return (
                _(
                    "Its step '%(step)s' has been due since %(due)s, and no live process serves the queue "
                    "'%(queue)s': start a worker for it."
                )
                % words
            )
        return (
            _(
                "Its step '%(step)s' has been due since %(due)s, and waits for a free worker on the queue "
                "'%(queue)s'."
            )
            % words
        )

    def _missing_code(self, execution: StepExecution) -> str | None:
        workflow, geneva = self.workflow, type(self.workflow)._geneva
        if not geneva.is_startable:
            what = _("This code declares no workflow class '%(type)s'")
        elif type(workflow).steps.resolve(execution.step_name) is None:
            what = _("This code declares no step '%(step)s' in %(type)s")
        else:
            return None
        what %= {"type": workflow.type, "step": execution.step_name}
        if execution.deferred_since is None:
            return _("%(what)s, so it stays where it is until code runs that does.") % {"what": what}
        until = clock.utc(execution.deferred_since) + settings.UNDEFINED_STEP_GRACE
        return _(
            "%(what)s: it is put off since %(since)s, and pauses at %(until)s unless code runs that does."
        ) % {"what": what, "since": _time(execution.deferred_since), "until": _time(until)}

    def _waiting(self, execution: StepExecution) -> str:
        words = {
            "step": execution.step_name,
            "since": _time(execution.waiting_since),
            "deadline": _time(execution.wait_deadline),
        }
        definition = type(self.workflow).steps.resolve(execution.step_name)
        if definition is None or definition.wait_for is None:
            return (
                _(
                    "Its step '%(step)s' is parked since %(since)s for a signal that this code does not wait for "
                    "any more: housekeeping moves it on."
                )
                % words
            )
        words["signal"] = describe(definition.wait_for)
        if execution.wait_deadline is None:
            return _("Its step '%(step)s' waits for the signal '%(signal)s' since %(since)s.") % words
        return (
            _(
                "Its step '%(step)s' waits for the signal '%(signal)s' since %(since)s, until %(deadline)s at the "
                "latest."
            )
            % words
        )

    def _dispatched(self, execution: StepExecution, words: dict[str, str]) -> str:
        if execution.dispatched_at is None:
            return (
                _(
                    "Its step '%(step)s' has been due since %(due)s, and its dispatch is lost: housekeeping "
                    "dispatches it again."
                )
                % words
            )
        again = clock.utc(execution.dispatched_at) + settings.OVERDUE_AFTER
        return _(
            "Its step '%(step)s' has been due since %(due)s, was dispatched at %(sent)s, and no job has come for "
            "it; housekeeping dispatches it again after %(again)s."
        ) % {**words, "sent": _time(execution.dispatched_at), "again": _time(again)}

    def _is_served(self, queue: str) -> bool:
        alive = Process.objects.using(self.using).filter(heartbeat_at__gte=self.now - settings.LEASE)
        # Few rows: one per process. A comma never occurs in a queue's name.
        return any(
            not queues or queue in queues.split(",") for queues in alive.values_list("queues", flat=True)
        )

    # -- performing

    def _performing(self, execution: StepExecution) -> str:
        words: dict[str, Any] = {"step": execution.step_name, "since": _time(execution.started_at)}
        if execution.process_id is None:
            assert execution.started_at is not None
            words["stuck"] = _time(clock.utc(execution.started_at) + settings.STUCK_AFTER)
            return (
                _(
                    "Its step '%(step)s' is in progress since %(since)s in a process that is not known, and will "
                    "be recovered after %(stuck)s."
                )
                % words
            )
        process = Process.objects.using(self.using).filter(pk=execution.process_id).first()
        if process is None:
            return (
                _(
                    "Its step '%(step)s' is in progress since %(since)s in a process that is gone, and will be "
                    "recovered by the next housekeeping."
                )
                % words
            )
        beat = clock.utc(process.heartbeat_at)
        words |= {
            "host": process.hostname,
            "pid": process.pid,
            "beat": _time(beat),
            "dead": _time(beat + settings.LEASE),
        }
        return self._in_process(beat, words) % words

    def _in_process(self, beat: datetime, words: dict[str, Any]) -> str:
        if beat + settings.LEASE <= self.now:
            return _(
                "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s, which has not "
                "beaten since %(beat)s and is held for dead: it will be recovered by the next housekeeping."
            )
        if self.now - beat > settings.LEASE / 2:
            return _(
                "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s, which has not "
                "beaten since %(beat)s; unless it beats, it will be recovered after %(dead)s."
            )
        if self.workflow.pause_requested_at is None:
            return _(
                "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s, which is alive."
            )
        asked = self._action("pause")
        if asked is None:
            return _(
                "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s; it will pause "
                "after that step."
            )
        words["who"] = _by(asked)
        return _(
            "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s; it will pause "
            "after that step %(who)s."
        )

    # -- paused

    def _paused(self) -> str:
        words = {"time": _time(self.workflow.transitioned_at)}
        ended = self._stopped_by()
        by_hand = self._action("pause")
        if ended is None or (by_hand is not None and by_hand.created_at >= ended.finished_at):
            if by_hand is None:
                return _("It is paused since %(time)s.") % words
            words |= {"time": _time(by_hand.created_at), "who": _by(by_hand)}
            return _("It was paused %(who)s at %(time)s.") % words
        words["step"] = ended.step_name
        if ended.outcome == Outcome.WORKFLOW_PAUSED:
            sentence = _("It was paused at %(time)s by its step '%(step)s'.")
        elif ended.error_class is None:
            words["outcome"] = str(Outcome(ended.outcome).label)
            sentence = _("It was paused at %(time)s after its step '%(step)s' %(outcome)s.")
        else:
            message = " ".join((ended.error_message or "").split())
            words["error"] = (f"{ended.error_class}: {message}" if message else ended.error_class)[:300]
            sentence = _("It was paused at %(time)s since its step '%(step)s' failed with %(error)s.")
        return _with_reason(sentence % words, ended)

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


def _by(action: OperatorAction) -> str:
    words = {"actor": action.actor, "reason": action.reason}
    if action.actor:
        return (_("by %(actor)s (%(reason)s)") if action.reason else _("by %(actor)s")) % words
    return (_("by hand (%(reason)s)") if action.reason else _("by hand")) % words


def _with_reason(sentence: str, execution: StepExecution) -> str:
    notes = execution.metadata if isinstance(execution.metadata, dict) else {}
    return f"{sentence.removesuffix('.')} ({notes['reason']})." if notes.get("reason") else sentence


def _time(value: datetime | None) -> str:
    if value is None:
        return _("an unknown time")
    return clock.utc(value).isoformat(sep=" ", timespec="seconds")
