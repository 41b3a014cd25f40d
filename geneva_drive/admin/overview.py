"""The overview, and the page of removed steps."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db.models import Count
from django.http import HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.admin.display import PagesAdmin, type_name, when
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
from geneva_drive.reports.wording import in_words, whole_seconds
from geneva_drive.states import ONGOING, WorkflowState

_MOST_PROCESSES = 100
_MOST_RUNNING = 1000
_STACK = (
    (WorkflowState.READY, "gd-ok"),
    (WorkflowState.PERFORMING, "gd-run"),
    (WorkflowState.PAUSED, "gd-bad"),
)


def overview(model_admin: PagesAdmin, request: HttpRequest) -> HttpResponseBase:
    """Show counts by type and state, what needs attention, and the processes that run steps."""
    model_admin.require(request)
    using = model_admin.alias(request)
    now = clock.now(using)
    found, at_steps, undeclared = figures(using), waiting(using), undeclared_in_flight(using)
    overdue: Any = StepExecution.objects.using(using).overdue(now).order_by()
    overdue = dict(overdue.values_list("workflow__type").annotate(Count("pk")))
    return model_admin.page(
        request,
        "overview",
        _("Overview of workflows"),
        now=clock.local(now),
        cards=_cards(model_admin, found, sum(each.workflows for each in undeclared)),
        columns=_columns(),
        types=[
            _type(model_admin, label, numbers)
            for label, numbers in sorted(_numbers(found, at_steps, undeclared, overdue).items())
        ],
        waiting=[
            {
                "url": model_admin.list_url(type=each.type, step=each.step, waiting="any"),
                "late_url": model_admin.list_url(type=each.type, step=each.step, waiting="long"),
                "since": when(each.since, now),
                "name": type_name(each.type),
                "row": each,
            }
            for each in at_steps
        ],
        processes=_processes(model_admin, using, now),
        list_url=model_admin.list_url(),
        removed_url=model_admin.url("removed_steps"),
    )


def _cards(model_admin: PagesAdmin, found: Figures, undeclared: int) -> list[dict[str, Any]]:
    late = _("overdue, the oldest by %(time)s") % {"time": in_words(whole_seconds(found.oldest_overdue))}
    cards = [
        (found.paused, _("paused"), "gd-bad", {"state": "paused"}),
        (undeclared, _("undeclared"), "gd-bad", {"undeclared": "yes"}),
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
    """Return the numbers that each type has: key, title, and the filters that list what is counted."""
    states = [(str(state), state.label, {"state": str(state)}) for state in WorkflowState]
    return [
        *states,
        ("overdue", _("overdue"), {"overdue": "any"}),
        ("waiting", _("waiting"), {"waiting": "any"}),
        ("too_long", _("too long"), {"waiting": "long"}),
        ("undeclared", _("undeclared"), {"undeclared": "yes"}),
    ]


def _numbers(
    found: Figures, at_steps: list[Waiting], undeclared: list[Undeclared], overdue: dict[str, int]
) -> dict[str, Counter[str]]:
    numbers: dict[str, Counter[str]] = defaultdict(Counter)
    for label, states in found.workflows.items():
        numbers[label].update(states)
    for label, count in overdue.items():
        numbers[label]["overdue"] = count
    for each in at_steps:
        numbers[each.type].update(waiting=each.workflows, too_long=each.too_long)
    for missing in undeclared:
        numbers[missing.type].update(undeclared=missing.workflows)
    return numbers


def _type(model_admin: PagesAdmin, label: str, numbers: Counter[str]) -> dict[str, Any]:
    ongoing = sum(numbers[state] for state in ONGOING)
    return {
        "name": type_name(label),
        "label": label,
        "missing": registry.get(label) is None,
        "url": model_admin.list_url(type=label),
        "cells": [
            {
                "count": numbers[key],
                "url": model_admin.list_url(type=label, **query),
                "tone": "gd-bad" if key in ("paused", "undeclared") and numbers[key] else "",
            }
            for key, _title, query in _columns()
        ],
        "ratio": f"{numbers['paused'] / ongoing:.1%}" if ongoing else "-",
        "stack": [
            (tone, max(5, round(numbers[state] / ongoing * 20) * 5))
            for state, tone in _STACK
            if ongoing and numbers[state]
        ],
    }


def _processes(model_admin: PagesAdmin, using: str, now: datetime) -> list[dict[str, Any]]:
    processes = list(Process.objects.using(using).order_by("-heartbeat_at")[:_MOST_PROCESSES])
    rows = StepExecution.objects.using(using).in_progress().filter(process__in=processes)
    slim = rows.only("workflow__type", "process_id", "step_name", "started_at").select_related("workflow")
    running = defaultdict(list)
    for each in slim.order_by("started_at")[:_MOST_RUNNING]:
        running[each.process_id].append(
            {
                "url": model_admin.url_of(each.workflow),
                "workflow": f"{type_name(each.workflow.type)} {each.workflow_id}",
                "step": each.step_name,
                "since": in_words(whole_seconds(now - clock.utc(each.started_at))) if each.started_at else "",
            }
        )
    return [
        {
            "name": f"{process.hostname} · {process.pid}",
            "kind": process.kind,
            "queues": process.queues.replace(",", ", ") or _("all"),
            "up": in_words(whole_seconds(now - clock.utc(process.started_at))),
            "alive": now - clock.utc(process.heartbeat_at) < settings.LEASE,
            "beat": when(process.heartbeat_at, now),
            "running": running[process.pk],
        }
        for process in processes
    ]


def removed_steps(model_admin: PagesAdmin, request: HttpRequest) -> HttpResponseBase:
    """Show every gravestone with the rows that name it, and what is in flight and undeclared."""
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
    overview_url = model_admin.url("overview")
    title = _("Removed steps")
    return model_admin.page(
        request, "removed_steps", title, graves=graves, missing=missing, overview_url=overview_url
    )


def _location(label: str, step: str) -> str:
    cls = registry.get(label)
    location = cls.steps[step].location if cls is not None else None
    if location is None:
        return ""
    # Relative to the longest import path that holds the file.
    roots = [root for root in sys.path if root and Path(location.file).is_relative_to(root)]
    return str(location).removeprefix(max(roots, key=len, default="")).lstrip("/\\")
