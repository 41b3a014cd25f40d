"""The attempts on the page of one workflow: a loop's executions are one line, since each goes on from the last."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.admin.actions import ACTIONS, Action
from geneva_drive.admin.base import PagesAdmin
from geneva_drive.admin.display import as_json, hero_link, in_words, pill, relative, tone, type_name
from geneva_drive.definition.matchers import describe
from geneva_drive.definition.registry import registry
from geneva_drive.models.records import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.explain import explain
from geneva_drive.reports.history import Chain, Progress, Timeline, TimelineStep, chains, duration_of, tell
from geneva_drive.states import ExecutionState, SignalState, WorkflowState
from geneva_drive.workflows import BulkAction

_LONGEST_MESSAGE = 120


@dataclass(frozen=True)
class Attempt:
    """One line, ready to be shown.

    Attributes
    ----------
    execution
        The last of its executions.
    left, width
        Of its bar, in steps of five per cent: a strict Content-Security-Policy allows classes and no inline
        style.
    error, traceback
        What is shown at once, and what is shown below it: no message a second time.
    parts
        What each of its executions did, where there are more than one.
    """

    execution: StepExecution
    started: Any
    pill: Any
    error: str
    traceback: str
    tone: str
    took: str
    left: int
    width: int
    progress: str
    parts: list[dict[str, Any]]
    details: list[tuple[str, str]]


def attempts(timeline: Timeline, now: datetime) -> list[Attempt]:
    """Return the lines, the latest first."""
    lines = chains(timeline.attempts)
    begun = [chain for chain in lines if chain.first.started_at is not None]
    first = min((_start(chain) for chain in begun), default=now)
    whole = max((_end(chain, now) for chain in begun), default=now) - first
    lines.sort(key=lambda chain: chain.last.pk, reverse=True)
    return [_line(chain, first, whole, now) for chain in lines]


def _start(chain: Chain) -> datetime:
    return clock.utc(chain.first.started_at or chain.first.created_at)


def _end(chain: Chain, now: datetime) -> datetime:
    return clock.utc(chain.last.finished_at) if chain.last.finished_at else now


def _line(chain: Chain, first: datetime, whole: timedelta, now: datetime) -> Attempt:
    last = chain.last
    worked = [took for each in chain.executions if (took := duration_of(each, now)) is not None]
    left = width = 0
    if chain.first.started_at is not None and whole > timedelta(0):
        left = min(95, int((_start(chain) - first) / whole * 20) * 5)
        width = max(5, min(100 - left, round((_end(chain, now) - _start(chain)) / whole * 20) * 5))
    return Attempt(
        execution=last,
        started=relative(chain.first.started_at or last.scheduled_for, now),
        pill=_pill(last),
        error=_error(last),
        traceback="\n\n".join(_below(last)),
        tone=tone(str(last.outcome or last.state)),
        took=in_words(sum(worked, timedelta(0))) if worked else "-",
        left=left,
        width=width,
        progress=progress_in_words(chain.progress),
        parts=[_part(each, now) for each in chain.executions] if len(chain.executions) > 1 else [],
        details=_details(last),
    )


def _error(execution: StepExecution) -> str:
    name = (execution.error_class or "").rsplit(".", 1)[-1]
    message = Truncator(execution.error_message or "").chars(_LONGEST_MESSAGE)
    return f"{name}: {message}" if message else name


def _below(execution: StepExecution) -> list[str]:
    message = execution.error_message or ""
    # A browser would show its lines as one.
    is_cut = len(message) > _LONGEST_MESSAGE or "\n" in message
    return [each for each in (message if is_cut else "", execution.error_traceback or "") if each]


def _pill(execution: StepExecution) -> str:
    label = execution.get_outcome_display() or execution.get_state_display()
    return pill(str(execution.outcome or execution.state), str(label))


def _part(execution: StepExecution, now: datetime) -> dict[str, Any]:
    took = duration_of(execution, now)
    return {
        "started": relative(execution.started_at or execution.scheduled_for, now),
        "pill": _pill(execution),
        "took": in_words(took) if took is not None else "-",
        "iterations": execution.iterations,
    }


def progress_in_words(found: Progress | None) -> str:
    """Return how far a loop is, how fast it goes and how long the rest takes; "" for what is no loop."""
    if found is None:
        return ""
    parts = [_("%(progress)s done") % {"progress": found}]
    if found.rate is not None and found.share != 1:
        parts.append(_("%(rate)s per second") % {"rate": f"{found.rate:,.1f}"})
    if found.remaining:
        parts.append(_("%(time)s of work left") % {"time": in_words(found.remaining)})
    return ", ".join(parts)


def _details(execution: StepExecution) -> list[tuple[str, str]]:
    details = []
    for label, name in ((_("Cursor"), "cursor"), (_("Notes"), "metadata")):
        try:
            value = getattr(execution, name)
        except Exception as error:  # noqa: BLE001 - other code's cursor may not be decodable; the page says so
            details.append((label, f"{type(error).__name__}: {error}"))
            continue
        if value is not None:
            details.append((label, as_json(value)))
    if execution.state == ExecutionState.SCHEDULED and execution.deferred_since is not None:
        details.append((_("Deferred since"), str(execution.deferred_since)))
    return details


_MARKS = {
    "done": "✓",
    "skipped": "»",
    "failed": "!",
    "canceled": "×",  # noqa: RUF001
    "current": "▸",
    "gravestone": "†",
    "undeclared": "?",
}
_MOST_SIGNALS = 200


def workflow_page(model_admin: PagesAdmin, request: HttpRequest, workflow: Workflow) -> dict[str, Any]:
    """Return the context of the page."""
    timeline = tell(workflow)
    now = clock.now(workflow._state.db)
    signals = list(
        Signal.objects.using(workflow._state.db)
        .filter(workflow_id=workflow.pk)
        .latest_first()[:_MOST_SIGNALS]
    )
    return {
        "workflow": workflow,
        "type_name": type_name(workflow.type),
        "is_declared": registry.get(workflow.type) is not None,
        "state": pill(workflow.state, workflow.get_state_display()),
        "hero": hero_link(workflow, model_admin.admin_site),
        "started": relative(workflow.created_at, now),
        "queue": timeline.attempts[-1].queue if timeline.attempts else "",
        "buttons": _buttons(model_admin, request, timeline),
        "banner": explain(workflow),
        "banner_tone": tone("failed" if _needs_somebody(workflow) else workflow.state),
        "steps": [
            _step(line, number, timeline, signals, now) for number, line in enumerate(timeline.steps, 1)
        ],
        "attempts": attempts(timeline, now),
        "awaited": _awaited(timeline, now),
        "signals": [_signal(each, timeline, now) for each in signals],
        "by_hand": [_by_hand(each, now) for each in reversed(timeline.actions)],
        "is_cut": timeline.is_cut,
        "bulk": _bulk(model_admin, workflow),
        "data": [
            (name, as_json(getattr(workflow, field)))
            for name, field in ((_("Metadata"), "metadata"), (_("Job options"), "job_options"))
            if getattr(workflow, field) is not None
        ],
    }


def _needs_somebody(workflow: Workflow) -> bool:
    is_stranded = workflow.is_ongoing and workflow.steps.resolve(workflow.next_step_name) is None
    return is_stranded or workflow.state == WorkflowState.PAUSED


def _buttons(model_admin: PagesAdmin, request: HttpRequest, timeline: Timeline) -> list[dict[str, Any]]:
    workflow = timeline.workflow
    offered = [
        action
        for action in ACTIONS
        if model_admin.may(request, action.permission) and action.is_offered(workflow, timeline.active)
    ]
    return [
        {
            "label": _label(action, timeline),
            "url": model_admin.url("act", workflow.pk, action.name),
            "asks": action.asks,
            "tone": "gd-danger" if action.name == "cancel" else "" if number == 0 else "gd-secondary",
        }
        for number, action in enumerate(offered)
    ]


def _label(action: Action, timeline: Timeline) -> str:
    """Name what the button will do to this workflow."""
    workflow, step = timeline.workflow, timeline.workflow.next_step_name
    definition = workflow.steps.resolve(step)
    runs = definition is not None and not definition.removed
    if action.name == "resume" and workflow.state == WorkflowState.PERFORMING:
        return _("Withdraw the pause")
    if action.name == "resume" and runs and timeline.active is None:
        return _("Resume: retry %(step)s") % {"step": step}
    if action.name == "resume" and runs:
        return _("Resume: continue with %(step)s") % {"step": step}
    if action.name == "skip" and step is not None:
        return _("Skip %(step)s…") % {"step": step}
    return f"{action.title}…" if action.asks else str(action.title)


def _step(
    line: TimelineStep, number: int, timeline: Timeline, signals: list[Signal], now: datetime
) -> dict[str, Any]:
    return {
        "name": line.name,
        "mark": _MARKS.get(line.status, str(number)),
        "tone": tone(line.status),
        "is_grave": line.status == "gravestone",
        "is_current": _is_current(line, timeline.workflow),
        "notes": " · ".join(_notes(line, timeline.workflow, signals, now)),
    }


def _is_current(line: TimelineStep, workflow: Workflow) -> bool:
    if not workflow.is_ongoing:
        return False
    return line.status in ("current", "failed") or line.name == workflow.next_step_name


def _notes(line: TimelineStep, workflow: Workflow, signals: list[Signal], now: datetime) -> list[str]:
    definition = workflow.steps.get(line.name)
    notes = [_happened(line, now)]
    if len(line.attempts) > 1:
        runs = len(chains(line.attempts))
        notes += [_("%(count)s attempts") % {"count": runs}] if runs > 1 else []
    if line.former_name:
        notes.append(_("formerly %(name)s") % {"name": line.former_name})
    elif definition is not None and definition.formerly:
        notes.append(_("formerly %(name)s") % {"name": ", ".join(definition.formerly)})
    if definition is None:
        return notes
    if definition.wait_for is not None:
        notes.append(_waits(line, describe(definition.wait_for), signals))
    if definition.resumable:
        notes.append(progress_in_words(chains(line.attempts)[-1].progress if line.attempts else None))
        notes.append(_("resumable"))
    if definition.skip_if is not None and not definition.skip_if.name.isidentifier():
        notes.append(_("has a condition"))
    elif definition.skip_if is not None:
        words = _("runs only when %(name)s") if definition.skip_if.negated else _("skipped when %(name)s")
        notes.append(words % {"name": definition.skip_if.name})
    return [note for note in notes if note]


def _happened(line: TimelineStep, now: datetime) -> str:
    last = line.attempts[-1] if line.attempts else None
    if line.status == "gravestone":
        return _("removed step; this run passed over it") if last else _("removed step")
    if line.status == "undeclared":
        return _("not declared in this code")
    if last is None:
        return _("pointed at") if line.status == "current" else _("to come")
    if last.state == ExecutionState.SCHEDULED:
        return _("scheduled")
    if last.state == ExecutionState.WAITING:
        return _("waiting")
    words = {
        "done": _("done"),
        "skipped": _("skipped"),
        "failed": _("failed"),
        "canceled": _("canceled"),
        "current": _("current"),
    }
    took = duration_of(last, now)
    return words.get(line.status, line.status) + (f", {in_words(took)}" if took is not None else "")


def _waits(line: TimelineStep, awaited: str, signals: list[Signal]) -> str:
    has_one = {attempt.signal_id for attempt in line.attempts} & {each.pk for each in signals}
    if has_one:
        return _("waited for %(signal)s, received") % {"signal": awaited}
    return _("waits for %(signal)s") % {"signal": awaited}


def _awaited(timeline: Timeline, now: datetime) -> str:
    active = timeline.active
    if active is None or active.state != ExecutionState.WAITING:
        return ""
    definition = timeline.workflow.steps.resolve(active.step_name)
    matcher = definition.wait_for if definition is not None else None
    since = now - clock.utc(active.waiting_since or active.created_at)
    text = _("%(step)s has waited for %(signal)s for %(time)s") % {
        "step": active.step_name,
        "signal": describe(matcher) if matcher is not None else _("a signal that this code does not know"),
        "time": in_words(since),
    }
    if active.wait_deadline is not None:
        left = clock.utc(active.wait_deadline) - now
        text += ", " + _("and waits %(time)s more") % {"time": in_words(left)}
    return text


def _signal(signal: Signal, timeline: Timeline, now: datetime) -> dict[str, Any]:
    holders = {attempt.step_name: None for attempt in timeline.attempts if attempt.signal_id == signal.pk}
    label = str(signal.get_state_display())
    if holders and signal.state != SignalState.PENDING:
        label = _("%(state)s by %(steps)s") % {"state": label, "steps": ", ".join(holders)}
    return {
        "received": relative(signal.created_at, now),
        "name": signal.name,
        "key": signal.idempotency_key or "",
        "pill": pill(signal.state, label),
        "payload": as_json(signal.payload),
    }


def _by_hand(action: Any, now: datetime) -> dict[str, Any]:
    before = action.before if isinstance(action.before, dict) else {}
    after = action.after if isinstance(action.after, dict) else {}
    changes = []
    if before.get("state") and after.get("state"):
        changes.append(f"{before['state']} → {after['state']}")
    changes += [str(after[name]) for name in ("step", "signal", "at") if after.get(name)]
    return {
        "when": relative(action.created_at, now),
        "who": action.actor or _("somebody"),
        "what": action.action,
        "reason": action.reason,
        "change": ", ".join(changes),
    }


def _bulk(model_admin: PagesAdmin, workflow: Workflow) -> dict[str, Any] | None:
    """Return what came of an action on many, if that is what this workflow is."""
    if not isinstance(workflow, BulkAction) or not isinstance(workflow.metadata, dict):
        return None
    order = workflow.metadata
    return {
        "action": order.get("action"),
        "total": order.get("total"),
        "failed": order.get("failed", 0),
        "failures": [
            (model_admin.url("workflow_change", key), key, message)
            for key, message in order.get("failures", [])
        ],
    }
