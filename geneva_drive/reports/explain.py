"""`explain`: a sentence that says why a workflow is where it is, and what happens next."""

from __future__ import annotations

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

_STOPPING = (Outcome.FAILED, Outcome.WORKFLOW_PAUSED, Outcome.RECOVERED)
"""Outcomes of a step that can leave its workflow paused."""


def explain(workflow: Workflow) -> str:
    """Return one sentence that says why ``workflow`` is where it is and what happens next.

    A second sentence follows when its step runs again after a crash. The active language is used. The row is read
    again, since the instance may be older: a handful of queries by key.

    Raises
    ------
    TypeError
        It is not a workflow, but for example a key.
    ValueError
        The workflow has never been saved.
    """
    if not isinstance(workflow, Workflow):
        raise TypeError(
            f"explain() takes a workflow, not {workflow!r}. If you have a key, use Workflow.objects.get(pk=...)."
        )
    if workflow._state.db is None:
        raise ValueError(
            f"explain() takes a workflow from the database, and this {type(workflow).__name__} has not been saved. "
            "Use start(), or Workflow.objects.get(pk=...)."
        )
    using = alias_of(workflow)
    current = type(workflow)._base_manager.using(using).filter(pk=workflow.pk).first()
    if current is None:
        return _("Workflow %(key)s no longer exists: its row was deleted.") % {"key": workflow.pk}
    return _Explanation(current, using).text()


class _Explanation:
    """Chooses a sentence and collects its words.

    Sentences are whole, and never joined from parts: other languages have another word order.
    """

    def __init__(self, workflow: Workflow, using: str) -> None:
        self.workflow = workflow
        self.using = using
        self.now = clock.now(using)
        self.executions = workflow.executions.db_manager(using)
        self.words: dict[str, Any] = {"time": exact(workflow.transitioned_at)}
        self.reason = ""
        self.second_sentence = ""

    def text(self) -> str:
        sentence = self._sentence() % self.words
        if self.reason:
            sentence = f"{sentence.removesuffix('.')} ({self.reason})."
        return f"{sentence} {self.second_sentence}" if self.second_sentence else sentence

    def _sentence(self) -> str:
        state = WorkflowState(self.workflow.state)
        self.words["state"] = state.label
        if state in ENDED:
            return _("It has ended: it was %(state)s at %(time)s.")
        execution = self.executions.filter(active_workflow=self.workflow.pk).first()
        if state == WorkflowState.PAUSED:
            return self._paused(has_active=execution is not None)
        if execution is None:
            return _(
                "It is %(state)s and has no active execution, which should not happen: cancel it and start another "
                "one."
            )
        self.words |= {
            "step": execution.step_name,
            "queue": execution.queue,
            "due": exact(execution.scheduled_for),
            "since": exact(execution.started_at),
        }
        if state == WorkflowState.PERFORMING:
            return self._performing(execution)
        return self._undeclared(execution) or self._ready(execution)

    def _undeclared(self, execution: StepExecution) -> str:
        workflow = self.workflow
        if not type(workflow)._geneva.is_startable:
            what = _("This code declares no workflow class '%(type)s'")
        elif type(workflow).steps.resolve(execution.step_name) is None:
            what = _("This code declares no step '%(step)s' in %(type)s")
        else:
            return ""
        self.words["what"] = what % {"type": workflow.type, "step": execution.step_name}
        if execution.deferred_since is None:
            return _("%(what)s: it does not continue until a worker runs code that declares it.")
        until = clock.utc(execution.deferred_since) + settings.UNDEFINED_STEP_GRACE
        self.words |= {"since": exact(execution.deferred_since), "until": exact(until)}
        if until <= self.now:
            return _(
                "%(what)s: it has been deferred since %(since)s, and pauses at the next attempt unless a "
                "worker runs code that declares it."
            )
        return _(
            "%(what)s: it has been deferred since %(since)s, and pauses at %(until)s unless a worker "
            "runs code that declares it."
        )

    def _ready(self, execution: StepExecution) -> str:
        if execution.state == ExecutionState.WAITING:
            return self._waiting(execution)
        if clock.utc(execution.scheduled_for) > self.now:
            return _("Its step '%(step)s' is not due until %(due)s.")
        if dispatch.configured_dispatcher().remembers:
            if execution.dispatched_at is None:
                return _(
                    "Its step '%(step)s' has been due since %(due)s and was never dispatched: housekeeping will "
                    "dispatch it."
                )
            again = clock.utc(execution.dispatched_at) + settings.OVERDUE_AFTER
            self.words |= {"sent": exact(execution.dispatched_at), "again": exact(again)}
            return _(
                "Its step '%(step)s' has been due since %(due)s and was dispatched at %(sent)s, but no job has "
                "started it: housekeeping will dispatch it again after %(again)s."
            )
        alive = Process.objects.using(self.using).filter(heartbeat_at__gte=self.now - settings.LEASE)
        if not any(process.serves(execution.queue) for process in alive.only("queues")):
            return _(
                "Its step '%(step)s' has been due since %(due)s, but no live process serves the queue '%(queue)s': "
                "start a worker for it."
            )
        return _(
            "Its step '%(step)s' has been due since %(due)s and waits for a free worker on the queue '%(queue)s'."
        )

    def _waiting(self, execution: StepExecution) -> str:
        self.words |= {"since": exact(execution.waiting_since), "deadline": exact(execution.wait_deadline)}
        definition = type(self.workflow).steps.resolve(execution.step_name)
        if definition is None or definition.wait_for is None:
            return _(
                "Its step '%(step)s' has been waiting since %(since)s for a signal that this code no longer waits "
                "for: the next maintenance run will schedule it."
            )
        self.words["signal"] = describe(definition.wait_for)
        if execution.wait_deadline is None:
            return _("Its step '%(step)s' has been waiting for the signal '%(signal)s' since %(since)s.")
        return _(
            "Its step '%(step)s' has been waiting for the signal '%(signal)s' since %(since)s, and waits until "
            "%(deadline)s at the latest."
        )

    def _performing(self, execution: StepExecution) -> str:
        if execution.crashes:
            self._tell_of_crash(execution)
        if execution.process_id is None:
            stuck = (
                None
                if execution.started_at is None
                else clock.utc(execution.started_at) + settings.STUCK_AFTER
            )
            self.words["stuck"] = exact(stuck)
            return _(
                "Its step '%(step)s' has been in progress since %(since)s in an unknown process: it will be recovered "
                "after %(stuck)s."
            )
        process = Process.objects.using(self.using).filter(pk=execution.process_id).first()
        if process is None:
            return _(
                "Its step '%(step)s' has been in progress since %(since)s in a process that no longer exists: the next "
                "housekeeping will recover it."
            )
        beat = clock.utc(process.heartbeat_at)
        self.words |= {
            "host": process.hostname,
            "pid": process.pid,
            "beat": exact(beat),
            "dead": exact(beat + settings.LEASE),
        }
        if process.heartbeat_at < process.started_at:
            # A forced exit writes this, so that nobody waits for the lease.
            return _(
                "Its step '%(step)s' has been in progress since %(since)s on %(host)s, process %(pid)s, which was "
                "force-stopped while running a step: the next housekeeping will recover it."
            )
        if beat + settings.LEASE <= self.now:
            return _(
                "Its step '%(step)s' has been in progress since %(since)s on %(host)s, process %(pid)s (last heartbeat "
                "%(beat)s; presumed dead): the next housekeeping will recover it."
            )
        if self.now - beat > settings.LEASE / 2:
            return _(
                "Its step '%(step)s' has been in progress since %(since)s on %(host)s, process %(pid)s (last heartbeat "
                "%(beat)s): it will be recovered after %(dead)s unless another heartbeat arrives."
            )
        if self.workflow.pause_requested_at is None:
            return _(
                "Its step '%(step)s' has been in progress since %(since)s on %(host)s, process %(pid)s, which is alive."
            )
        request = self._latest_pause()
        if request is None:
            return _(
                "Its step '%(step)s' has been in progress since %(since)s on %(host)s, process %(pid)s; it will pause "
                "after that step."
            )
        self.words["who"] = _by_whom(request)
        return _(
            "Its step '%(step)s' has been in progress since %(since)s on %(host)s, process %(pid)s; it will pause "
            "after that step, as requested %(who)s."
        )

    def _tell_of_crash(self, execution: StepExecution) -> None:
        ended = self._latest_ended()
        if ended is None or ended.outcome != Outcome.RECOVERED:
            return
        words = {"number": execution.crashes + execution.reattempts + 1, "time": exact(ended.finished_at)}
        text = _(
            "This is attempt %(number)s in a row: the previous one was recovered at %(time)s because its process died."
        )
        self.second_sentence = text % words

    def _paused(self, *, has_active: bool) -> str:
        # With an active execution no step has stopped it: somebody's pause holds back what comes next.
        ended = None if has_active else self._latest_ended()
        if ended is not None and ended.outcome not in _STOPPING:
            ended = None
        request = self._latest_pause()
        if ended is None or (request is not None and request.created_at >= ended.finished_at):
            if request is None:
                return _("It has been paused since %(time)s.")
            self.words |= {"time": exact(request.created_at), "who": _by_whom(request)}
            return _("It was paused %(who)s at %(time)s.")
        self.reason = str(ended.metadata.get("reason") or "") if isinstance(ended.metadata, dict) else ""
        self.words["step"] = ended.step_name
        if ended.outcome == Outcome.WORKFLOW_PAUSED:
            return _("It was paused at %(time)s by its step '%(step)s'.")
        if ended.error_class is None:
            self.words["outcome"] = Outcome(ended.outcome).label
            return _("It was paused at %(time)s after its step '%(step)s' was %(outcome)s.")
        message = " ".join((ended.error_message or "").split())
        error = f"{ended.error_class}: {message}" if message else str(ended.error_class)
        self.words["error"] = error[:_LONGEST_ERROR].removesuffix(".")  # the sentence has its own full stop
        return _("It was paused at %(time)s because its step '%(step)s' failed with %(error)s.")

    def _latest_ended(self) -> Any:
        return self.executions.filter(finished_at__isnull=False).latest_first().first()

    def _latest_pause(self) -> Any:
        actions = self.workflow.operator_actions.db_manager(self.using).filter(action="pause")
        return actions.latest_first().first()


def _by_whom(action: OperatorAction) -> str:
    words = {"actor": action.actor, "reason": action.reason}
    if action.actor:
        return (_("by %(actor)s (%(reason)s)") if action.reason else _("by %(actor)s")) % words
    return (_("manually (%(reason)s)") if action.reason else _("manually")) % words
