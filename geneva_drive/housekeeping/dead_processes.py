"""Recovery: what dead processes, and nobody, have in hand."""

from __future__ import annotations

import logging
from collections.abc import Iterator
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
from geneva_drive.states import ExecutionState

logger = logging.getLogger("geneva_drive.housekeeping")


def recover(using: str, counts: Counts | None = None) -> Counts:
    """Recover what dead processes, and nobody, have in hand; remove the rows of dead processes."""
    counts = counts or Counts()
    dead_before = clock.now(using) - settings.LEASE
    for process_id in list(_dead_processes(using, dead_before)):
        why = f"process {process_id} stopped beating"
        for pk, workflow_id, token in _in_hand(using, Q(process_id=process_id)):
            counts.recovered += _recover(
                pk, workflow_id, token, using=using, why=why, still_dead=partial(_is_dead, using, process_id)
            )
        counts.processes += remove_row(using, process_id, dead_before=dead_before)
    stuck_before = clock.now(using) - settings.STUCK_AFTER
    for pk, workflow_id, token in _in_hand(using, Q(process_id__isnull=True, started_at__lt=stuck_before)):
        why = f"in progress for more than {settings.STUCK_AFTER} without a known process"
        counts.recovered += _recover(pk, workflow_id, token, using=using, why=why, still_dead=lambda: True)
    return counts


def _recover(pk: Any, workflow_id: Any, token: UUID | None, **how: Any) -> bool:
    try:
        return recover_one(pk, workflow_id, token, **how)
    except Exception as error:
        if may_pass(error, how["using"]):
            raise
        # One bad row keeps no others from being recovered.
        extra = about(workflow_id=workflow_id, execution_id=pk)
        logger.exception("Execution %s could not be recovered.", pk, extra=extra)
        return False


def _in_hand(using: str, condition: Q) -> list[tuple[Any, Any, UUID | None]]:
    rows = StepExecution.objects.using(using).filter(condition, state=ExecutionState.IN_PROGRESS)
    return list(rows.order_by("started_at").values_list("pk", "workflow_id", "attempt_token"))


def _is_dead(using: str, process_id: UUID) -> bool:
    alive_since = clock.now(using) - settings.LEASE
    return not Process.objects.using(using).filter(pk=process_id, heartbeat_at__gte=alive_since).exists()


def _dead_processes(using: str, dead_before: Any) -> Iterator[UUID]:
    """Yield processes whose heartbeat stopped, and those that rows name although they have no row."""
    known = set(Process.objects.using(using).values_list("pk", flat=True))
    yield from Process.objects.using(using).filter(heartbeat_at__lt=dead_before).values_list("pk", flat=True)
    for process_id in StepExecution.objects.using(using).in_progress().skip_scan("process_id"):
        if process_id not in known and _is_dead(using, process_id):
            yield process_id
