"""Recovery of the executions that dead processes left in progress."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import Q

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.execution.heartbeat import remove_row
from geneva_drive.execution.recovery import recover_one
from geneva_drive.housekeeping.counts import Counts
from geneva_drive.lifecycle.locking import may_pass
from geneva_drive.logs import about
from geneva_drive.models.records import Process
from geneva_drive.models.step_execution import StepExecution

logger = logging.getLogger("geneva_drive.housekeeping")


def recover(using: str, counts: Counts | None = None) -> Counts:
    """Recover what dead processes, or unknown ones, left in progress; delete the rows of dead processes."""
    counts = counts or Counts()
    dead_before = clock.now(using) - settings.LEASE
    for process_id in list(_dead_processes(using, dead_before)):
        why = f"process {process_id} has no heartbeat any more"
        still_dead = partial(_is_dead, using, process_id)
        counts.recovered += _recover(using, Q(process_id=process_id), why, still_dead)
        counts.processes += remove_row(using, process_id, dead_before=dead_before)
    stuck = Q(process_id__isnull=True, started_at__lt=clock.now(using) - settings.STUCK_AFTER)
    why = f"in progress for more than {settings.STUCK_AFTER} without a known process"
    counts.recovered += _recover(using, stuck, why, lambda: True)
    return counts


def _recover(using: str, condition: Q, why: str, still_dead: Callable[[], bool]) -> int:
    recovered = 0
    for pk, workflow_id, token in _in_progress(using, condition):
        try:
            recovered += recover_one(pk, workflow_id, token, using=using, why=why, still_dead=still_dead)
        except Exception as error:
            if may_pass(error, using):
                raise
            # One bad row does not stop the others.
            extra = about(workflow_id=workflow_id, execution_id=pk)
            logger.exception("Execution %s could not be recovered.", pk, extra=extra)
    return recovered


def _in_progress(using: str, condition: Q) -> list[tuple[Any, Any, UUID | None]]:
    rows = StepExecution.objects.using(using).in_progress().filter(condition)
    return list(rows.order_by("started_at").values_list("pk", "workflow_id", "attempt_token"))


def _is_dead(using: str, process_id: UUID) -> bool:
    alive_since = clock.now(using) - settings.LEASE
    return not Process.objects.using(using).filter(pk=process_id, heartbeat_at__gte=alive_since).exists()


def _dead_processes(using: str, dead_before: datetime) -> Iterator[UUID]:
    """Yield processes without a recent heartbeat, and those that executions name although they have no row."""
    known = set(Process.objects.using(using).values_list("pk", flat=True))
    yield from Process.objects.using(using).filter(heartbeat_at__lt=dead_before).values_list("pk", flat=True)
    for process_id in StepExecution.objects.using(using).in_progress().skip_scan("process_id"):
        if process_id not in known and _is_dead(using, process_id):
            yield process_id
