"""The overview, and the page of removed steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied
from django.db.models import Count
from django.http import HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.admin.presenting import in_words, relative
from geneva_drive.conf import settings
from geneva_drive.models.process import Process
from geneva_drive.models.registry import registry
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports import removed_steps_in_flight, undeclared_in_flight
from geneva_drive.states import ONGOING, ExecutionState, WorkflowState

if TYPE_CHECKING:
    from geneva_drive.admin.workflow_admin import WorkflowAdmin

__all__ = ["overview", "removed_steps"]

_MOST_PROCESSES = 100
_CAP = 10_000


def overview(model_admin: WorkflowAdmin, request: HttpRequest) -> HttpResponseBase:
    """Counts by type and state, what needs attention, and who is at work."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    using = model_admin.alias(request)
    now = clock.now(using)

    link = model_admin.list_url
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Overview of workflows"),
        "opts": model_admin.opts,
        "media": model_admin.page_media(),
        "now": now,
        "types": _types(using, link),
        "cards": _cards(using, now, link),
        "processes": _processes(model_admin, using, now),
        "list_url": model_admin.url("geneva_drive_workflow_changelist"),
        "removed_url": model_admin.url("geneva_drive_removed_steps"),
    }
    return TemplateResponse(request, "geneva_drive/admin/overview.html", context)


_COLUMNS = ("ready", "performing", "paused", "finished", "canceled")
_STACK_TONES = {"ready": "gd-ok", "performing": "gd-run", "paused": "gd-bad"}


def _types(using: str, link: Any) -> list[dict[str, Any]]:
    counts: dict[str, dict[str, int]] = {}
    rows = Workflow.objects.using(using).order_by("type", "state").values_list("type", "state")
    for label, state, count in rows.annotate(Count("pk")):
        counts.setdefault(label, {})[state] = count
    found = []
    for label, by_state in counts.items():
        ongoing = sum(by_state.get(str(state), 0) for state in ONGOING)
        paused = by_state.get("paused", 0)
        found.append(
            {
                "label": label,
                "missing": registry.get(label) is None,
                "url": link(type=label),
                "cells": [(by_state.get(name, 0), link(type=label, state=name), name) for name in _COLUMNS],
                "ratio": f"{paused / ongoing:.1%}" if ongoing else "-",
                "stack": [
                    (tone, max(5, round(by_state.get(name, 0) / ongoing * 20) * 5))
                    for name, tone in _STACK_TONES.items()
                    if ongoing and by_state.get(name, 0)
                ],
            }
        )
    return found


def _cards(using: str, now: Any, link: Any) -> list[dict[str, Any]]:
    rows = Workflow.objects.using(using)
    executions = StepExecution.objects.using(using)
    overdue = executions.due(now - settings.OVERDUE_AFTER)
    oldest = overdue.order_by("scheduled_for").values_list("scheduled_for", flat=True).first()
    late = (
        _("overdue")
        if oldest is None
        else _("overdue, oldest %(t)s") % {"t": in_words(now - clock.utc(oldest))}
    )
    waiting = executions.filter(state=ExecutionState.WAITING)
    too_long = waiting.filter(waiting_since__lt=now - settings.WAITING_TOO_LONG)
    stranded = sum(each.workflows for each in undeclared_in_flight(using))
    alive = Process.objects.using(using).filter(heartbeat_at__gte=now - settings.LEASE).count()

    def capped(queryset: Any) -> int:
        return len(queryset.order_by().values_list("pk")[:_CAP])

    paused = capped(rows.filter(state=WorkflowState.PAUSED))
    return [
        {
            "count": paused,
            "label": _("paused"),
            "tone": "gd-bad" if paused else "",
            "url": link(state="paused"),
        },
        {
            "count": stranded,
            "label": _("stranded: code missing"),
            "tone": "gd-bad" if stranded else "",
            "url": link(stranded="yes"),
        },
        {
            "count": capped(overdue),
            "label": late,
            "tone": "gd-wait" if oldest else "",
            "url": link(overdue="long"),
        },
        {
            "count": capped(too_long),
            "label": _("waiting too long"),
            "tone": "gd-wait",
            "url": link(waiting="long"),
        },
        {
            "count": capped(waiting),
            "label": _("waiting for a signal"),
            "tone": "",
            "url": link(waiting="any"),
        },
        {
            "count": alive,
            "label": _("live processes"),
            "tone": "gd-ok" if alive else "gd-bad",
            "url": "#processes",
        },
    ]


def _processes(model_admin: WorkflowAdmin, using: str, now: Any) -> list[dict[str, Any]]:
    found = []
    for process in Process.objects.using(using).order_by("-heartbeat_at")[:_MOST_PROCESSES]:
        alive = now - clock.utc(process.heartbeat_at) < settings.LEASE
        in_hand = (
            StepExecution.objects.using(using)
            .filter(process_id=process.pk, state=ExecutionState.IN_PROGRESS)
            .only("workflow_id", "step_name", "started_at")
            .order_by("started_at")[:20]
        )
        found.append(
            {
                "name": f"{process.hostname} · {process.pid}",
                "kind": process.kind,
                "queues": process.queues.replace(",", ", ") or _("all"),
                "up": in_words(now - clock.utc(process.started_at)),
                "alive": alive,
                "beat": relative(process.heartbeat_at, now),
                "running": [
                    {
                        "url": model_admin.url("geneva_drive_workflow_change", each.workflow_id),
                        "workflow": each.workflow_id,
                        "step": each.step_name,
                        "since": in_words(now - clock.utc(each.started_at)) if each.started_at else "",
                    }
                    for each in in_hand
                ],
            }
        )
    return found


def removed_steps(model_admin: WorkflowAdmin, request: HttpRequest) -> HttpResponseBase:
    """Every gravestone with its rows, and what is in flight and not declared."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    using = model_admin.alias(request)

    graves = []
    for each in removed_steps_in_flight(using):
        cls = registry.get(each.type)
        location = cls.steps[each.step].location if cls is not None else None
        graves.append(
            {
                "type": each.type,
                "step": each.step,
                "executions": each.executions,
                "landing": each.landing,
                "landing_url": model_admin.list_url(type=each.type, step=each.step),
                "type_url": model_admin.list_url(type=each.type, state="ongoing"),
                "location": str(location) if location is not None else "",
                "deletable": each.can_be_deleted,
            }
        )
    missing = [
        {
            "type": each.type,
            "step": each.step,
            "workflows": each.workflows,
            "states": ", ".join(f"{count} {state}" for state, count in sorted(each.states.items())),
            "url": model_admin.list_url(
                type=each.type, state="ongoing", **({"step": each.step} if each.step else {})
            ),
        }
        for each in undeclared_in_flight(using)
    ]
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Removed steps"),
        "opts": model_admin.opts,
        "media": model_admin.page_media(),
        "graves": graves,
        "missing": missing,
        "overview_url": model_admin.url("geneva_drive_overview"),
    }
    return TemplateResponse(request, "geneva_drive/admin/removed_steps.html", context)
