"""The overview, and the page of removed steps."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db.models import Count
from django.http import HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.admin.base import PagesAdmin
from geneva_drive.admin.display import in_words, relative, type_name
from geneva_drive.conf import settings
from geneva_drive.definition.registry import registry
from geneva_drive.models.records import Process
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.reports.figures import Figures, figures
from geneva_drive.reports.in_flight import (
    Undeclared,
    Waiting,
    removed_steps_in_flight,
    undeclared_in_flight,
    waiting,
)
from geneva_drive.states import ONGOING, ExecutionState, WorkflowState

_MOST_PROCESSES = 100
_MOST_IN_HAND = 1000
_STACK = (
    (WorkflowState.READY, "gd-ok"),
    (WorkflowState.PERFORMING, "gd-run"),
    (WorkflowState.PAUSED, "gd-bad"),
)


def overview(model_admin: PagesAdmin, request: HttpRequest) -> HttpResponseBase:
    """Counts by type and state, what needs attention, and who is at work."""
    model_admin.require(request)
    using = model_admin.alias(request)
    now = clock.now(using)
    found, too_long, undeclared = figures(using), waiting(using), undeclared_in_flight(using)
    return model_admin.page(
        request,
        "overview",
        _("Overview of workflows"),
        now=clock.local(now),
        cards=_cards(model_admin, found, sum(each.workflows for each in undeclared)),
        columns=_columns(),
        types=_types(model_admin, found, too_long, undeclared, _overdue_by_type(using, now)),
        waiting=[
            {
                "url": model_admin.list_url(type=each.type, step=each.step, waiting="any"),
                "late_url": model_admin.list_url(type=each.type, step=each.step, waiting="long"),
                "since": relative(each.since, now),
                "name": type_name(each.type),
                "row": each,
            }
            for each in too_long
        ],
        processes=_processes(model_admin, using, now),
        list_url=model_admin.list_url(),
        removed_url=model_admin.url("removed_steps"),
    )


def _cards(model_admin: PagesAdmin, found: Figures, undeclared: int) -> list[dict[str, Any]]:
    late = _("overdue, oldest %(time)s") % {"time": in_words(found.oldest_overdue)}
    cards = [
        (found.paused, _("paused"), "gd-bad", {"state": "paused"}),
        (undeclared, _("undeclared: code missing"), "gd-bad", {"undeclared": "yes"}),
        (found.overdue, late if found.overdue else _("overdue"), "gd-wait", {"overdue": "any"}),
        (found.waiting_too_long, _("waiting too long"), "gd-wait", {"waiting": "long"}),
        (found.waiting, _("waiting for a signal"), "", {"waiting": "any"}),
    ]
    shown = [
        {"count": count, "label": label, "tone": tone if count else "", "url": model_admin.list_url(**query)}
        for count, label, tone, query in cards
    ]
    alive = found.live_processes
    tone = "gd-ok" if alive else "gd-bad"
    return [*shown, {"count": alive, "label": _("live processes"), "tone": tone, "url": "#processes"}]


def _columns() -> list[tuple[str, Any, dict[str, str]]]:
    """Return the numbers that each type has: key, title, and what the list is asked for by them."""
    states = [(str(state), state.label, {"state": str(state)}) for state in WorkflowState]
    return [
        *states,
        ("overdue", _("overdue"), {"overdue": "any"}),
        ("waiting", _("waiting"), {"waiting": "any"}),
        ("too_long", _("too long"), {"waiting": "long"}),
        ("undeclared", _("undeclared"), {"undeclared": "yes"}),
    ]


_ALARMING = ("paused", "undeclared")


def _types(
    model_admin: PagesAdmin,
    found: Figures,
    waiting: list[Waiting],
    undeclared: list[Undeclared],
    overdue: dict[str, int],
) -> list[dict[str, Any]]:
    numbers: dict[str, dict[str, int]] = {label: dict(states) for label, states in found.workflows.items()}
    for label, count in overdue.items():
        numbers.setdefault(label, {})["overdue"] = count
    for each in waiting:
        of_type = numbers.setdefault(each.type, {})
        of_type["waiting"] = of_type.get("waiting", 0) + each.workflows
        of_type["too_long"] = of_type.get("too_long", 0) + each.too_long
    for missing in undeclared:
        of_type = numbers.setdefault(missing.type, {})
        of_type["undeclared"] = of_type.get("undeclared", 0) + missing.workflows
    return [_type(model_admin, label, of_type) for label, of_type in sorted(numbers.items())]


def _type(model_admin: PagesAdmin, label: str, numbers: dict[str, int]) -> dict[str, Any]:
    ongoing = sum(numbers.get(str(state), 0) for state in ONGOING)
    return {
        "name": type_name(label),
        "label": label,
        "missing": registry.get(label) is None,
        "url": model_admin.list_url(type=label),
        "cells": [
            {
                "count": numbers.get(key, 0),
                "url": model_admin.list_url(type=label, **query),
                "tone": "gd-bad" if key in _ALARMING and numbers.get(key) else "",
            }
            for key, _title, query in _columns()
        ],
        "ratio": f"{numbers.get('paused', 0) / ongoing:.1%}" if ongoing else "-",
        "stack": [
            (tone, max(5, round(numbers.get(str(state), 0) / ongoing * 20) * 5))
            for state, tone in _STACK
            if ongoing and numbers.get(str(state))
        ],
    }


def _overdue_by_type(using: str, now: datetime) -> dict[str, int]:
    rows: Any = StepExecution.objects.using(using).overdue(now).order_by()
    return dict(rows.values_list("workflow__type").annotate(Count("pk")))


def _processes(model_admin: PagesAdmin, using: str, now: datetime) -> list[dict[str, Any]]:
    processes = list(Process.objects.using(using).order_by("-heartbeat_at")[:_MOST_PROCESSES])
    rows = StepExecution.objects.using(using).filter(
        state=ExecutionState.IN_PROGRESS, process_id__in=[each.pk for each in processes]
    )
    in_hand: dict[Any, list[dict[str, Any]]] = {}
    slim = rows.only("workflow__type", "process_id", "step_name", "started_at").select_related("workflow")
    for each in slim.order_by("started_at")[:_MOST_IN_HAND]:
        in_hand.setdefault(each.process_id, []).append(
            {
                "url": model_admin.url("workflow_change", each.workflow_id),
                "workflow": f"{type_name(each.workflow.type)} {each.workflow_id}",
                "step": each.step_name,
                "since": in_words(now - clock.utc(each.started_at)) if each.started_at else "",
            }
        )
    return [
        {
            "name": f"{process.hostname} · {process.pid}",
            "kind": process.kind,
            "queues": process.queues.replace(",", ", ") or _("all"),
            "up": in_words(now - clock.utc(process.started_at)),
            "alive": now - clock.utc(process.heartbeat_at) < settings.LEASE,
            "beat": relative(process.heartbeat_at, now),
            "running": in_hand.get(process.pk, []),
        }
        for process in processes
    ]


def removed_steps(model_admin: PagesAdmin, request: HttpRequest) -> HttpResponseBase:
    """Every gravestone with its rows, and what is in flight and not declared."""
    model_admin.require(request)
    using = model_admin.alias(request)
    graves = [
        {
            "row": each,
            "name": type_name(each.type),
            "location": _location(each.type, each.step),
            "url": model_admin.list_url(type=each.type, state="ongoing", tried=each.step),
            "landing_url": model_admin.list_url(type=each.type, state="ongoing", step=each.step),
        }
        for each in removed_steps_in_flight(using)
    ]
    missing = [
        {
            "row": each,
            "name": type_name(each.type),
            "states": sorted(each.states.items()),
            "url": model_admin.list_url(
                type=each.type, state="ongoing", **({"step": each.step} if each.step else {})
            ),
        }
        for each in undeclared_in_flight(using)
    ]
    return model_admin.page(
        request,
        "removed_steps",
        _("Removed steps"),
        graves=graves,
        missing=missing,
        overview_url=model_admin.url("overview"),
    )


def _location(label: str, step: str) -> str:
    cls = registry.get(label)
    location = cls.steps[step].location if cls is not None else None
    if location is None:
        return ""
    # As short as an import would find it.
    roots = [root for root in sys.path if root and Path(location.file).is_relative_to(root)]
    return str(location).removeprefix(max(roots, key=len, default="")).lstrip("/\\")
