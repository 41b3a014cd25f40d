"""How many workflows are where, in a bounded number of queries, each of which an index serves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import router
from django.db.models import Count, Min, Q

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.models.records import Process
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ONGOING, ExecutionState, WorkflowState


@dataclass(frozen=True)
class Figures:
    """Counts of rows at one moment.

    Attributes
    ----------
    workflows
        By type and state. States without rows are left out.
    waiting
        Executions that are waiting for a signal.
    waiting_too_long
        Those of them that have been for longer than the setting ``WAITING_TOO_LONG``.
    overdue
        Executions that are due and not begun, those of paused workflows left out.
    oldest_overdue
        For how long the oldest of them has been due. Zero when there is none.
    live_processes
        Processes that have beaten within the lease.
    """

    workflows: dict[str, dict[str, int]]
    waiting: int
    waiting_too_long: int
    overdue: int
    oldest_overdue: timedelta
    live_processes: int

    @property
    def ongoing(self) -> int:
        """Workflows that are neither finished nor canceled."""
        return sum(states.get(state, 0) for states in self.workflows.values() for state in ONGOING)

    @property
    def paused(self) -> int:
        return sum(states.get(WorkflowState.PAUSED, 0) for states in self.workflows.values())

    @property
    def paused_ratio(self) -> float:
        """Paused workflows among the ongoing ones, from 0 to 1. Zero when nothing is ongoing."""
        return self.paused / self.ongoing if self.ongoing else 0.0


def figures(using: str | None = None) -> Figures:
    """Count what there is. The number of queries grows with the queues and priorities in use, not with rows."""
    alias = using or router.db_for_read(Workflow)
    now = clock.now(alias)
    waiting, waiting_too_long = _waiting(alias, now)
    overdue, oldest = _overdue(alias, now)
    return Figures(
        workflows=_workflows(alias),
        waiting=waiting,
        waiting_too_long=waiting_too_long,
        overdue=overdue,
        oldest_overdue=max(now - oldest, timedelta(0)) if oldest is not None else timedelta(0),
        live_processes=Process.objects.using(alias).filter(heartbeat_at__gte=now - settings.LEASE).count(),
    )


def _workflows(alias: str) -> dict[str, dict[str, int]]:
    rows = Workflow._base_manager.using(alias).order_by("type", "state")
    found: dict[str, dict[str, int]] = {}
    for label, state, count in rows.values_list("type", "state").annotate(Count("pk")):
        found.setdefault(label, {})[state] = count
    return found


def _waiting(alias: str, now: datetime) -> tuple[int, int]:
    too_long = Q(waiting_since__lt=now - settings.WAITING_TOO_LONG)
    counts = (
        StepExecution.objects.using(alias)
        .filter(state=ExecutionState.WAITING)
        .aggregate(all=Count("pk"), too_long=Count("pk", filter=too_long))
    )
    return counts["all"], counts["too_long"]


def _overdue(alias: str, now: datetime) -> tuple[int, datetime | None]:
    rows = StepExecution.objects.using(alias).overdue(now)
    found = rows.aggregate(count=Count("pk"), oldest=Min("scheduled_for"))
    return found["count"], None if found["oldest"] is None else clock.utc(found["oldest"])
