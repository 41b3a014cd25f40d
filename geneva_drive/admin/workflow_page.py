"""The page of one workflow: its steps, attempts, signals and operator actions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.admin.actions import ACTIONS, Action
from geneva_drive.admin.display import PagesAdmin, as_json, hero_link, pill, state_pill, tone, type_name, when
from geneva_drive.definition.matchers import describe
from geneva_drive.definition.registry import registry
from geneva_drive.models.records import OperatorAction, Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.explain import explain
from geneva_drive.reports.history import (
    Chain,
    Progress,
    Timeline,
    TimelineStep,
    chains,
    duration_of,
    timeline_of,
)
from geneva_drive.reports.wording import MARKS, in_words, relative, whole_seconds
from geneva_drive.states import ExecutionState, SignalState, WorkflowState
from geneva_drive.workflows import BulkAction

_MOST_SIGNALS = 200
_LONGEST_MESSAGE = 120


def workflow_page(model_admin: PagesAdmin, request: HttpRequest, workflow: Workflow) -> dict[str, Any]:
    """Return the context of the page."""
    timeline = timeline_of(workflow)
    now = clock.now(workflow._state.db)
    signals = list(
        Signal.objects.using(workflow._state.db)
        .filter(workflow_id=workflow.pk)
        .latest_first()[:_MOST_SIGNALS]
    )
    is_undeclared = workflow.is_ongoing and workflow.steps.resolve(workflow.next_step_name) is None
    return {
        "workflow": workflow,
        "type_name": type_name(workflow.type),
        "is_declared": registry.get(workflow.type) is not None,
        "state": state_pill(workflow),
        "hero": hero_link(workflow, model_admin.admin_site),
        "started": when(workflow.created_at, now),
        "queue": timeline.attempts[-1].queue if timeline.attempts else "",
        "buttons": _buttons(model_admin, request, timeline),
        "banner": explain(workflow),
        "banner_tone": tone("undeclared" if is_undeclared else workflow.state),
        "steps": [
            _step(line, number, workflow, signals, now) for number, line in enumerate(timeline.steps, 1)
        ],
        "attempts": _attempts(timeline, now),
        "awaited": _awaited(timeline, now),
        "signals": [_signal(each, timeline, now) for each in signals],
        "operator_actions": [_operator_action(each, now) for each in reversed(timeline.actions)],
        "is_cut": timeline.is_cut,
        "bulk": _bulk(model_admin, workflow),
        "data": [
            (name, as_json(getattr(workflow, field)))
            for name, field in ((_("Metadata"), "metadata"), (_("Job options"), "job_options"))
            if getattr(workflow, field) is not None
        ],
    }


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
    if action.name == "skip" and step is not None:
        return _("Skip %(step)s…") % {"step": step}
    if action.name != "resume":
        return f"{action.title}…" if action.asks else str(action.title)
    if workflow.state == WorkflowState.PERFORMING:
        return _("Cancel the pause request")
    definition = workflow.steps.resolve(step)
    if definition is None or definition.removed:
        return str(action.title)
    text = _("Resume: retry %(step)s") if timeline.active is None else _("Resume: continue with %(step)s")
    return text % {"step": step}


# -- steps


def _step(
    line: TimelineStep, number: int, workflow: Workflow, signals: list[Signal], now: datetime
) -> dict[str, Any]:
    is_pointed_at = line.status in ("current", "failed") or line.name == workflow.next_step_name
    return {
        "name": line.name,
        "mark": number if line.status == "to come" else MARKS[line.status],
        "tone": tone(line.status),
        "is_grave": line.status == "gravestone",
        "is_current": workflow.is_ongoing and is_pointed_at,
        "notes": " · ".join(_notes(line, workflow, signals, now)),
    }


def _notes(line: TimelineStep, workflow: Workflow, signals: list[Signal], now: datetime) -> list[str]:
    definition = workflow.steps.get(line.name)
    runs = chains(line.attempts)
    notes = [_happened(line, now)]
    if len(runs) > 1:
        notes.append(_("%(count)s attempts") % {"count": len(runs)})
    formerly = line.former_name or (", ".join(definition.formerly) if definition is not None else "")
    if formerly:
        notes.append(_("formerly %(name)s") % {"name": formerly})
    if definition is None:
        return notes
    if definition.wait_for is not None:
        received = {attempt.signal_id for attempt in line.attempts} & {each.pk for each in signals}
        text = _("waited for %(signal)s, received") if received else _("waits for %(signal)s")
        notes.append(text % {"signal": describe(definition.wait_for)})
    if definition.resumable:
        if progress := _progress(runs[-1].progress if runs else None):
            notes.append(progress)
        notes.append(_("resumable"))
    if definition.skip_if is not None and not definition.skip_if.name.isidentifier():
        notes.append(_("has a condition"))
    elif definition.skip_if is not None:
        text = _("runs only when %(name)s") if definition.skip_if.negated else _("skipped when %(name)s")
        notes.append(text % {"name": definition.skip_if.name})
    return notes


def _happened(line: TimelineStep, now: datetime) -> str:
    last = line.attempts[-1] if line.attempts else None
    if line.status == "gravestone":
        return _("removed step, skipped") if last else _("removed step")
    if line.status == "undeclared":
        return _("not declared in this code")
    if last is None:
        return _("next") if line.status == "current" else _("not yet run")
    if last.state in (ExecutionState.SCHEDULED, ExecutionState.WAITING):
        return _("waiting") if last.state == ExecutionState.WAITING else _("scheduled")
    words = {
        "done": _("done"),
        "skipped": _("skipped"),
        "failed": _("failed"),
        "canceled": _("canceled"),
        "current": _("current"),
    }
    took = duration_of(last, now)
    return words[line.status] + (f", {in_words(took)}" if took is not None else "")


# -- attempts


def _attempts(timeline: Timeline, now: datetime) -> list[dict[str, Any]]:
    """Return a line for each attempt, the latest first. The executions of one loop share a line."""
    lines = chains(timeline.attempts)
    begun = [chain for chain in lines if chain.first.started_at is not None]
    first = min((_start(chain) for chain in begun), default=now)
    whole = max((_end(chain, now) for chain in begun), default=now) - first
    return [_attempt(chain, first, whole, now) for chain in reversed(lines)]


def _start(chain: Chain) -> datetime:
    return clock.utc(chain.first.started_at or chain.first.created_at)


def _end(chain: Chain, now: datetime) -> datetime:
    return clock.utc(chain.last.finished_at) if chain.last.finished_at else now


def _attempt(chain: Chain, first: datetime, whole: timedelta, now: datetime) -> dict[str, Any]:
    last = chain.last
    # The bar's place is in steps of five per cent: a strict Content-Security-Policy allows classes, but no style.
    left = width = 0
    if chain.first.started_at is not None and whole > timedelta(0):
        left = min(95, int((_start(chain) - first) / whole * 20) * 5)
        width = max(5, min(100 - left, round((_end(chain, now) - _start(chain)) / whole * 20) * 5))
    message = last.error_message or ""
    beginning = Truncator(message).chars(_LONGEST_MESSAGE)
    # A message of one line is shown whole at once; it is not repeated below.
    below = message if beginning != message or "\n" in message else ""
    took = [each for execution in chain.executions if (each := duration_of(execution, now)) is not None]
    return {
        "execution": last,
        "started": when(chain.first.started_at or last.scheduled_for, now),
        "pill": _pill(last),
        "error": ": ".join(filter(None, ((last.error_class or "").rsplit(".", 1)[-1], beginning))),
        "traceback": "\n\n".join(filter(None, (below, last.error_traceback))),
        "tone": tone(str(last.outcome or last.state)),
        "took": in_words(sum(took, timedelta(0))) if took else "-",
        "left": left,
        "width": width,
        "progress": _progress(chain.progress),
        "parts": [_part(each, now) for each in chain.executions] if len(chain.executions) > 1 else [],
        "details": _details(last),
    }


def _part(execution: StepExecution, now: datetime) -> dict[str, Any]:
    took = duration_of(execution, now)
    return {
        "started": when(execution.started_at or execution.scheduled_for, now),
        "pill": _pill(execution),
        "took": in_words(took) if took is not None else "-",
        "iterations": execution.iterations,
    }


def _pill(execution: StepExecution) -> str:
    label = execution.get_outcome_display() or execution.get_state_display()
    return pill(str(execution.outcome or execution.state), label)


def _progress(found: Progress | None) -> str:
    """Return how far a loop is, its rate, and the time left; "" for any other step."""
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
        except Exception as error:  # noqa: BLE001 - another version's cursor may not be decodable
            details.append((label, f"{type(error).__name__}: {error}"))
            continue
        if value is not None:
            details.append((label, as_json(value)))
    if execution.state == ExecutionState.SCHEDULED and execution.deferred_since is not None:
        details.append((_("Deferred since"), str(execution.deferred_since)))
    return details


# -- signals and operator actions


def _awaited(timeline: Timeline, now: datetime) -> str:
    active = timeline.active
    if active is None or active.state != ExecutionState.WAITING:
        return ""
    definition = timeline.workflow.steps.resolve(active.step_name)
    matcher = definition.wait_for if definition is not None else None
    since = now - clock.utc(active.waiting_since or active.created_at)
    text = _("%(step)s has waited for %(signal)s for %(time)s") % {
        "step": active.step_name,
        "signal": describe(matcher) if matcher is not None else _("a signal that this code does not declare"),
        "time": in_words(whole_seconds(since)),
    }
    if active.wait_deadline is not None:
        text += "; " + _("timeout %(moment)s") % {"moment": relative(active.wait_deadline, now)}
    return text


def _signal(signal: Signal, timeline: Timeline, now: datetime) -> dict[str, Any]:
    holders = {attempt.step_name: None for attempt in timeline.attempts if attempt.signal_id == signal.pk}
    label = str(signal.get_state_display())
    if holders and signal.state != SignalState.PENDING:
        label = _("%(state)s by %(steps)s") % {"state": label, "steps": ", ".join(holders)}
    return {
        "received": when(signal.created_at, now),
        "name": signal.name,
        "key": signal.idempotency_key or "",
        "pill": pill(signal.state, label),
        "payload": as_json(signal.payload),
    }


def _operator_action(action: OperatorAction, now: datetime) -> dict[str, Any]:
    before = action.before if isinstance(action.before, dict) else {}
    after = action.after if isinstance(action.after, dict) else {}
    changes = []
    if before.get("state") and after.get("state"):
        changes.append(f"{before['state']} → {after['state']}")
    changes += [str(after[name]) for name in ("step", "signal", "at") if after.get(name)]
    return {
        "when": when(action.created_at, now),
        "who": action.actor or _("somebody"),
        "what": action.action,
        "reason": action.reason,
        "change": ", ".join(changes),
    }


def _bulk(model_admin: PagesAdmin, workflow: Workflow) -> dict[str, Any] | None:
    """Return what a bulk action does and which workflows refused it; None for any other workflow."""
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
