"""Parts of sentences that stand for themselves: moments, people, errors."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.matchers import describe
from geneva_drive.lifecycle import dispatch
from geneva_drive.lifecycle.locking import alias_of
from geneva_drive.models.records import OperatorAction, Process
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.wording import exact
from geneva_drive.states import ENDED, ExecutionState, Outcome, WorkflowState

_LONGEST_ERROR = 300


def by_whom(action: OperatorAction) -> str:
    words = {"actor": action.actor, "reason": action.reason}
    if action.actor:
        return (_("by %(actor)s (%(reason)s)") if action.reason else _("by %(actor)s")) % words
    return (_("by hand (%(reason)s)") if action.reason else _("by hand")) % words


def error_in_a_line(execution: StepExecution) -> str:
    """Return class and message in one line, without the full stop: the sentence around them has its own."""
    message = " ".join((execution.error_message or "").split())
    text = f"{execution.error_class}: {message}" if message else str(execution.error_class)
    return text[:_LONGEST_ERROR].removesuffix(".")


def with_reason(sentence: str, execution: StepExecution) -> str:
    notes = execution.metadata if isinstance(execution.metadata, dict) else {}
    return f"{sentence.removesuffix('.')} ({notes['reason']})." if notes.get("reason") else sentence


def in_progress(
    execution: StepExecution, asked: OperatorAction | None, *, pausing: bool, now: datetime
) -> str:
    """Return where a step is in progress and what follows.

    Parameters
    ----------
    asked
        The latest pause by hand, if there was one: told when ``pausing``.
    pausing
        Whether a pause waits for the end of the step.
    """
    told: dict[str, Any] = {"step": execution.step_name, "since": exact(execution.started_at)}
    if execution.process_id is None:
        assert execution.started_at is not None
        told["stuck"] = exact(clock.utc(execution.started_at) + settings.STUCK_AFTER)
        return (
            _(
                "Its step '%(step)s' is in progress since %(since)s in a process that is not known, and will "
                "be recovered after %(stuck)s."
            )
            % told
        )
    process = Process.objects.using(execution._state.db).filter(pk=execution.process_id).first()
    if process is None:
        return (
            _(
                "Its step '%(step)s' is in progress since %(since)s in a process that is gone, and will be "
                "recovered by the next housekeeping."
            )
            % told
        )
    beat = clock.utc(process.heartbeat_at)
    told |= {
        "host": process.hostname,
        "pid": process.pid,
        "beat": exact(beat),
        "dead": exact(beat + settings.LEASE),
        "who": by_whom(asked) if asked is not None else "",
    }
    return _in_process(process, pausing=pausing, by_somebody=asked is not None, now=now) % told


def _in_process(process: Process, *, pausing: bool, by_somebody: bool, now: datetime) -> str:
    beat = clock.utc(process.heartbeat_at)
    if process.heartbeat_at < process.started_at:
        # What a forced exit writes, so that nobody waits for the lease. No beat was ever then.
        return _(
            "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s, which was made to end "
            "before its steps did: it will be recovered by the next housekeeping."
        )
    if beat + settings.LEASE <= now:
        return _(
            "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s, which has not "
            "beaten since %(beat)s and is held for dead: it will be recovered by the next housekeeping."
        )
    if now - beat > settings.LEASE / 2:
        return _(
            "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s, which has not "
            "beaten since %(beat)s; unless it beats, it will be recovered after %(dead)s."
        )
    if not pausing:
        return _(
            "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s, which is alive."
        )
    if not by_somebody:
        return _(
            "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s; it will pause "
            "after that step."
        )
    return _(
        "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s; it will pause "
        "after that step %(who)s."
    )


def retried(execution: StepExecution, ended: StepExecution | None) -> str | None:
    """Return a sentence about the attempt before if a crash ended it. ``ended``: the latest that has ended."""
    if ended is None or ended.outcome != Outcome.RECOVERED:
        return None
    told = {"number": execution.crashes + execution.reattempts + 1, "time": exact(ended.finished_at)}
    return (
        _(
            "It is attempt %(number)s in a row: the one before it was recovered at %(time)s, since its process had "
            "died."
        )
        % told
    )


_STOPPING = (Outcome.FAILED, Outcome.WORKFLOW_PAUSED, Outcome.RECOVERED)
"""Outcomes after which a workflow may be paused by what happened in a step."""


def explain(workflow: Workflow) -> str:
    """Return one sentence that says why ``workflow`` is where it is and what will move it on.

    A second one follows when its step runs again after a crash. In the language that is active. Looked up anew: the
    instance may be older than its row. A handful of queries by key.

    Raises
    ------
    TypeError
        It was given something else, a key for example.
    ValueError
        The workflow has never been saved.
    """
    if not isinstance(workflow, Workflow):
        raise TypeError(
            f"explain() takes a workflow, not {workflow!r}. One with a known key is Workflow.objects.get(pk=...)."
        )
    if workflow._state.db is None:
        raise ValueError(
            f"explain() takes a workflow that is in the database, and this {type(workflow).__name__} has not been "
            "saved. start() returns one that is, Workflow.objects.get(pk=...) another."
        )
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
                "time": exact(self.workflow.transitioned_at),
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
        words = {"step": execution.step_name, "due": exact(due), "queue": execution.queue}
        if due > self.now:
            return _("Its step '%(step)s' is not due until %(due)s.") % words
        if dispatch.configured_dispatcher().remembers:
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
        words = {
            "what": what,
            "since": exact(execution.deferred_since),
            "until": exact(until),
        }
        if until <= self.now:
            return (
                _(
                    "%(what)s: it is put off since %(since)s, and pauses with the next look at it unless code runs "
                    "that does."
                )
                % words
            )
        return (
            _("%(what)s: it is put off since %(since)s, and pauses at %(until)s unless code runs that does.")
            % words
        )

    def _waiting(self, execution: StepExecution) -> str:
        words = {
            "step": execution.step_name,
            "since": exact(execution.waiting_since),
            "deadline": exact(execution.wait_deadline),
        }
        definition = type(self.workflow).steps.resolve(execution.step_name)
        if definition is None or definition.wait_for is None:
            return (
                _(
                    "Its step '%(step)s' is waiting since %(since)s for a signal that this code does not wait for "
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
        ) % {**words, "sent": exact(execution.dispatched_at), "again": exact(again)}

    def _is_served(self, queue: str) -> bool:
        alive = Process.objects.using(self.using).filter(heartbeat_at__gte=self.now - settings.LEASE)
        # Few rows: one per process.
        return any(process.serves(queue) for process in alive.only("queues"))

    # -- performing

    def _performing(self, execution: StepExecution) -> str:
        pausing = self.workflow.pause_requested_at is not None
        asked = self._action("pause") if pausing else None
        sentence = in_progress(execution, asked, pausing=pausing, now=self.now)
        # Asked only where the row says so: the first attempt is what nearly everybody sees.
        before = retried(execution, self._latest_ended()) if execution.crashes else None
        return f"{sentence} {before}" if before else sentence

    # -- paused

    def _paused(self) -> str:
        words = {"time": exact(self.workflow.transitioned_at)}
        ended = self._stopped_by()
        by_hand = self._action("pause")
        if ended is None or (by_hand is not None and by_hand.created_at >= ended.finished_at):
            if by_hand is None:
                return _("It is paused since %(time)s.") % words
            words |= {"time": exact(by_hand.created_at), "who": by_whom(by_hand)}
            return _("It was paused %(who)s at %(time)s.") % words
        words["step"] = ended.step_name
        if ended.outcome == Outcome.WORKFLOW_PAUSED:
            sentence = _("It was paused at %(time)s by its step '%(step)s'.")
        elif ended.error_class is None:
            words["outcome"] = str(Outcome(ended.outcome).label)
            sentence = _("It was paused at %(time)s after its step '%(step)s' %(outcome)s.")
        else:
            words["error"] = error_in_a_line(ended)
            sentence = _("It was paused at %(time)s because its step '%(step)s' failed with %(error)s.")
        return with_reason(sentence % words, ended)

    def _stopped_by(self) -> StepExecution | None:
        if self._active() is not None:
            # Nothing has stopped it: what comes next is held back by somebody's pause.
            return None
        latest = self._latest_ended()
        return latest if latest is not None and latest.outcome in _STOPPING else None

    def _latest_ended(self) -> StepExecution | None:
        rows = self.workflow.executions.db_manager(self.using).filter(finished_at__isnull=False)
        latest: StepExecution | None = rows.latest_first().first()
        return latest

    def _action(self, action: str) -> OperatorAction | None:
        actions = self.workflow.operator_actions.db_manager(self.using).filter(action=action)
        latest: OperatorAction | None = actions.latest_first().first()
        return latest
