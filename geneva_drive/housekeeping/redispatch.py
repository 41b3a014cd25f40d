"""Dispatch executions when their time comes near, and again when their job did not arrive."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.housekeeping.counts import Counts
from geneva_drive.lifecycle import dispatch
from geneva_drive.models.step_execution import StepExecution

_BATCH = 1000

_YOUNG = timedelta(seconds=5)
"""A row younger than this is left to its sender, which may be between its commit and the sending."""

_FAILURES = 3
"""After so many failures in a row, the rest of a queue waits for the next pass: the broker is unavailable."""


def feed(using: str, counts: Counts | None = None) -> Counts:
    """Dispatch executions within the dispatcher's lookahead that have not been dispatched yet.

    These were beyond the lookahead when they were written, or could not be sent then. Feeders may run in parallel.
    """
    counts = counts or Counts()
    dispatcher = dispatch.configured_dispatcher()
    if not dispatcher.remembers:
        return counts  # workers read the tables themselves
    now = clock.now(using)
    rows = StepExecution.objects.using(using).scheduled().filter(on_hold=False, dispatched_at__isnull=True)
    lookahead = dispatcher.lookahead()
    if lookahead is not None:
        rows = rows.filter(scheduled_for__lte=clock.local(now + lookahead))
    rows = rows.filter(created_at__lt=clock.local(now - _YOUNG))
    counts.fed += _dispatch_forgotten(using, rows, before=now - settings.OVERDUE_AFTER)
    return counts


def redispatch(using: str, counts: Counts | None = None) -> Counts:
    """Dispatch overdue executions again, whose job did not arrive. It counts as no attempt."""
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
    rows = rows.defer("error_message", "error_traceback", "cursor", "metadata").order_by("scheduled_for")
    for priority, queue in StepExecution.objects.using(using).buckets():
        failures = 0
        for execution in rows.filter(queue=queue, priority=priority)[:_BATCH]:
            sent = dispatch.dispatch_forgotten(execution, before)
            dispatched += sent is True
            failures = failures + 1 if sent is False else 0
            if failures >= _FAILURES:
                break
    return dispatched


def forget_dispatched(using: str) -> int:
    """Let scheduled executions be dispatched again after ``DISPATCHER`` was changed; return how many.

    Jobs of the old dispatcher may never arrive. Those that do arrive change nothing.
    """
    rows = StepExecution.objects.using(using).scheduled().filter(dispatched_at__isnull=False)
    forgotten = 0
    while keys := list(rows.values_list("pk", flat=True)[:_BATCH]):
        # In bounded statements, since each locks rows that other processes are starting.
        forgotten += rows.filter(pk__in=keys).update(dispatched_at=None, job_id=None)
    return forgotten
