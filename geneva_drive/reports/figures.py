"""Counts for dashboards and metrics: a few queries, each served by an index."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

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
        Executions that wait for a signal.
    waiting_too_long
        Those that have waited for longer than the setting ``WAITING_TOO_LONG``.
    overdue
        Executions that are due and have not started. Those of paused workflows do not count.
    oldest_overdue
        How long the oldest of them has been due. Zero when there is none.
    live_processes
        Processes with a heartbeat within the lease.
    """

    workflows: dict[str, dict[str, int]]
    waiting: int
    waiting_too_long: int
    overdue: int
    oldest_overdue: timedelta
    live_processes: int

    @property
    def ongoing(self) -> int:
        """The number of workflows that are neither finished nor canceled."""
        return sum(states.get(state, 0) for states in self.workflows.values() for state in ONGOING)

    @property
    def paused(self) -> int:
        """The number of paused workflows."""
        return sum(states.get(WorkflowState.PAUSED, 0) for states in self.workflows.values())

    @property
    def paused_ratio(self) -> float:
        """The share of paused workflows among the ongoing ones, from 0 to 1. Zero when nothing is ongoing."""
        return self.paused / self.ongoing if self.ongoing else 0.0


def figures(using: str | None = None) -> Figures:
    """Count. The number of queries grows with the queues and priorities in use, not with the rows."""
    alias = using or router.db_for_read(Workflow)
    now = clock.now(alias)
    workflows: dict[str, dict[str, int]] = {}
    by_state = Workflow._base_manager.using(alias).order_by("type", "state").values_list("type", "state")
    for label, state, count in by_state.annotate(Count("pk")):
        workflows.setdefault(label, {})[state] = count
    executions = StepExecution.objects.using(alias)
    too_long = Q(waiting_since__lt=now - settings.WAITING_TOO_LONG)
    waiting = executions.filter(state=ExecutionState.WAITING).aggregate(
        all=Count("pk"), too_long=Count("pk", filter=too_long)
    )
    overdue = executions.overdue(now).aggregate(count=Count("pk"), oldest=Min("scheduled_for"))
    return Figures(
        workflows=workflows,
        waiting=waiting["all"],
        waiting_too_long=waiting["too_long"],
        overdue=overdue["count"],
        oldest_overdue=max(clock.elapsed(overdue["oldest"], alias), timedelta(0)),
        live_processes=Process.objects.using(alias).filter(heartbeat_at__gte=now - settings.LEASE).count(),
    )
