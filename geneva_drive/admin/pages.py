"""What the page of one workflow tells."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import Model
from django.http import HttpRequest
from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.admin.actions import ACTIONS
from geneva_drive.admin.presenting import hero_link, in_words, pill, relative, tone
from geneva_drive.models.signal import Signal
from geneva_drive.reports import explain
from geneva_drive.states import ExecutionState, WorkflowState
from geneva_drive.story import StepLine, Story, duration_of, tell

if TYPE_CHECKING:
    from geneva_drive.admin.workflow_admin import WorkflowAdmin
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["workflow_page"]

_MARKS = {
    "done": "✓",
    "skipped": "»",
    "failed": "!",
    "canceled": "×",  # noqa: RUF001
    "current": "▸",
    "gravestone": "†",
    "not declared": "?",
}
_MOST_SIGNALS = 200


@dataclass(frozen=True)
class Attempt:
    """One row of the attempts, ready to be shown."""

    execution: StepExecution
    started: Any
    pill: Any
    tone: str
    took: str
    # In steps of five per cent, since a strict Content-Security-Policy allows classes and no inline style.
    left: int
    width: int
    progress: str
    details: list[tuple[str, str]]


def workflow_page(model_admin: WorkflowAdmin, request: HttpRequest, workflow: Workflow) -> dict[str, Any]:
    """Return the context of the page."""
    story = tell(workflow)
    now = clock.now(workflow._state.db)
    # What is pending already, and how it will end, is the banner's; the buttons name what they will do.
    buttons = [
        {
            "name": action.name,
            "label": _label(action.name, str(action.button), workflow),
            "url": model_admin.url("geneva_drive_act", workflow.pk, action.name),
            "dangerous": action.dangerous,
            "first": number == 0,
        }
        for number, action in enumerate(
            each for each in ACTIONS if each.applies(workflow) and model_admin.may(request, each)
        )
    ]
    return {
        "title": _title(workflow),
        "opts": model_admin.opts,
        "media": model_admin.page_media(),
        "workflow": workflow,
        "state": pill(workflow.state, workflow.get_state_display()),
        "hero": hero_link(workflow, model_admin.admin_site),
        "started": relative(workflow.created_at, now),
        "queue": _queue(story),
        "buttons": buttons,
        "banner": explain(workflow),
        "banner_tone": tone("failed" if workflow.state == WorkflowState.PAUSED else workflow.state),
        "steps": [_step(line, number, workflow, now) for number, line in enumerate(story.steps, 1)],
        "attempts": _attempts(story, now),
        "signals": _signals(workflow, now),
        "actions_by_hand": [
            {
                "when": relative(each.created_at, now),
                "who": each.actor or _("somebody"),
                "what": each.action,
                "reason": each.reason,
                "change": _change(each.before, each.after),
            }
            for each in reversed(story.actions)
        ],
        "data": [
            (name, _json(getattr(workflow, field)))
            for name, field in ((_("Metadata"), "metadata"), (_("Job options"), "job_options"))
            if getattr(workflow, field) is not None
        ],
    }


def _title(workflow: Workflow) -> str:
    return f"{workflow.type} {workflow.pk}"


def _label(name: str, button: str, workflow: Workflow) -> str:
    step = workflow.next_step_name
    if name == "resume" and step is not None:
        return _("Resume: run %(step)s") % {"step": step}
    if name == "skip" and step is not None:
        return _("Skip %(step)s…") % {"step": step}
    return button


def _queue(story: Story) -> str:
    return story.attempts[-1].queue if story.attempts else ""


def _step(line: StepLine, number: int, workflow: Workflow, now: Any) -> dict[str, Any]:
    definition = workflow.steps.get(line.name)
    notes = []
    last = line.attempts[-1] if line.attempts else None
    if line.status == "gravestone":
        notes.append(_("removed step; this run passed over it") if last else _("removed step"))
    elif line.status == "not declared":
        notes.append(_("not declared in this code"))
    elif last is None:
        notes.append(_("pointed at") if line.status == "current" else _("to come"))
    else:
        took = duration_of(last, now)
        notes.append(str(_status_words(line.status)) + (f", {in_words(took)}" if took is not None else ""))
    if len(line.attempts) > 1:
        notes.append(_("%(count)s attempts") % {"count": len(line.attempts)})
    if line.former_name:
        notes.append(_("formerly %(name)s") % {"name": line.former_name})
    if definition is not None and definition.resumable:
        notes.append(_("resumable"))
    if definition is not None and definition.skip_if is not None:
        notes.append(_("has a condition"))
    return {
        "name": line.name,
        "mark": _MARKS.get(line.status, str(number)),
        "tone": tone(line.status),
        "status": line.status,
        "is_grave": line.status == "gravestone",
        "is_current": line.status in ("current", "failed") and workflow.next_step_name is not None,
        "notes": " · ".join(notes),
    }


def _status_words(status: str) -> str:
    return {
        "done": _("done"),
        "skipped": _("skipped"),
        "failed": _("failed"),
        "canceled": _("canceled"),
        "current": _("current"),
    }.get(status, status)


def _attempts(story: Story, now: Any) -> list[Attempt]:
    begun = [each for each in story.attempts if each.started_at is not None]
    if begun:
        first = clock.utc(begun[0].started_at)  # type: ignore[arg-type]
        whole = max((clock.utc(e.finished_at) if e.finished_at else now) for e in begun) - first
    else:
        first, whole = now, timedelta(0)
    return [_attempt(each, first, whole, now) for each in reversed(story.attempts)]


def _attempt(execution: StepExecution, first: Any, whole: timedelta, now: Any) -> Attempt:
    took = duration_of(execution, now)
    left = width = 0
    if took is not None and whole > timedelta(0) and execution.started_at is not None:
        left = min(95, int((clock.utc(execution.started_at) - first) / whole * 20) * 5)
        width = max(5, min(100 - left, round(took / whole * 20) * 5))
    word = str(execution.outcome or execution.state)
    return Attempt(
        execution=execution,
        started=relative(execution.started_at or execution.scheduled_for, now),
        pill=pill(word, str(execution.get_outcome_display() or execution.get_state_display())),
        tone=tone(word),
        took=in_words(took) if took is not None else "-",
        left=left,
        width=width,
        progress=_progress(execution),
        details=_details(execution),
    )


def _progress(execution: StepExecution) -> str:
    if not execution.iterations:
        return ""
    if execution.iterations_total:
        share = execution.iterations / execution.iterations_total
        return _("%(done)s of %(total)s (%(share)s%%)") % {
            "done": execution.iterations,
            "total": execution.iterations_total,
            "share": int(share * 100),
        }
    return _("%(done)s done") % {"done": execution.iterations}


def _details(execution: StepExecution) -> list[tuple[str, str]]:
    details = []
    for label, name in ((_("Cursor"), "cursor"), (_("Notes"), "metadata")):
        try:
            value = getattr(execution, name)
        except Exception as error:  # noqa: BLE001 - a cursor of other code may not be decodable; the page shows it
            details.append((label, f"{type(error).__name__}: {error}"))
            continue
        if value is not None:
            details.append((label, _json(value)))
    if execution.state == ExecutionState.SCHEDULED and execution.deferred_since is not None:
        details.append((_("Deferred since"), str(execution.deferred_since)))
    return details


def _signals(workflow: Workflow, now: Any) -> list[dict[str, Any]]:
    rows = (
        Signal.objects.using(workflow._state.db)
        .filter(workflow_id=workflow.pk)
        .order_by("-pk")[:_MOST_SIGNALS]
    )
    return [
        {
            "received": relative(each.created_at, now),
            "name": each.name,
            "key": each.idempotency_key or "",
            "pill": pill(each.state, str(each.get_state_display())),
            "payload": _json(each.payload),
        }
        for each in rows
    ]


def _change(before: Any, after: Any) -> str:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return ""
    return f"{before.get('state')} → {after.get('state')}" + (
        f", {after['step']}" if after.get("step") else ""
    )


def _json(value: Any) -> str:
    def other(each: Any) -> Any:
        if isinstance(each, Model):
            return f"{each._meta.label} {each.pk}"
        if isinstance(each, set | frozenset | tuple):
            return list(each)
        return str(each)

    return json.dumps(value, default=other, ensure_ascii=False, indent=1)
