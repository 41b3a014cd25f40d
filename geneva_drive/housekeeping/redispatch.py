"""Dispatching what lies unsent, and again what was sent in vain: the rows are the dispatcher's memory."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.housekeeping.counts import Counts
from geneva_drive.lifecycle import dispatch
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.states import ExecutionState

_BATCH = 1000

_OWN_TIME = timedelta(seconds=5)
"""A row younger than this is still its own sender's, which may be between the commit and the sending."""

_FAILURES = 3
"""After so many in a row the others of a queue wait for the next pass: a broker that is gone stays gone."""


def feed(using: str, counts: Counts | None = None) -> Counts:
    """Dispatch what comes within the dispatcher's reach and has not been dispatched yet.

    That is what waits longer than a broker should be told of, and what could not be sent when it was
    written. Feeders may run side by side.
    """
    counts = counts or Counts()
    dispatcher = dispatch.configured_dispatcher()
    if not dispatcher.remembers:
        return counts  # every claim looks at the tables themselves
    now = clock.now(using)
    reach = dispatcher.lookahead()
    rows = StepExecution.objects.using(using).filter(state=ExecutionState.SCHEDULED, on_hold=False)
    if reach is not None:
        rows = rows.filter(scheduled_for__lte=clock.local(now + reach))
    rows = rows.filter(dispatched_at__isnull=True, created_at__lt=clock.local(now - _OWN_TIME))
    counts.fed += _dispatch_forgotten(using, rows, before=now - settings.OVERDUE_AFTER)
    return counts


def redispatch(using: str, counts: Counts | None = None) -> Counts:
    """Dispatch again what is overdue and whose job never came: the same rows, no attempt used."""
    counts = counts or Counts()
    if not dispatch.configured_dispatcher().remembers:
        return counts
    before = clock.now(using) - settings.OVERDUE_AFTER
    forgotten = Q(dispatched_at__isnull=True) | Q(dispatched_at__lt=clock.local(before))
    rows = StepExecution.objects.using(using).due(clock.local(before)).filter(forgotten)
    counts.redispatched += _dispatch_forgotten(using, rows, before=before)
    return counts


def _dispatch_forgotten(using: str, rows: Any, *, before: datetime) -> int:
    """Dispatch rows, one queue and priority after the other so that the index of what is due is used."""
    dispatched = 0
    for priority, queue in StepExecution.objects.using(using).buckets():
        found = (
            rows.filter(queue=queue, priority=priority)
            .defer("error_message", "error_traceback", "cursor", "metadata")
            .order_by("scheduled_for")[:_BATCH]
        )
        failures = 0
        for execution in found:
            sent = dispatch.dispatch_forgotten(execution, before)
            if sent:
                dispatched += 1
            failures = failures + 1 if sent is False else 0
            if failures >= _FAILURES:
                break
    return dispatched


def forget_dispatched(using: str) -> int:
    """Forget what was dispatched, so that the dispatcher in use now is fed with it; return the rows.

    For the day on which a project changes its dispatcher: jobs that lie with the old one may never come.
    Those that do change nothing.
    """
    rows = StepExecution.objects.using(using).filter(state=ExecutionState.SCHEDULED)
    forgotten = 0
    while keys := list(rows.filter(dispatched_at__isnull=False).values_list("pk", flat=True)[:_BATCH]):
        # In bounded statements: each locks rows that other processes begin at this moment.
        forgotten += rows.filter(pk__in=keys).update(dispatched_at=None, job_id=None)
    return forgotten
