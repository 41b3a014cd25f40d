"""Clean-up: what ended before the retention goes, with everything that hangs on it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import IntegrityError, connections
from django.db.models import ProtectedError, Q, RestrictedError
from django.db.models.deletion import Collector

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.housekeeping.counts import Counts
from geneva_drive.lifecycle.locking import in_transaction, write_first
from geneva_drive.logs import about
from geneva_drive.models.records import OperatorAction, Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ENDED, ExecutionState

logger = logging.getLogger("geneva_drive.housekeeping")


def clean_up(
    using: str,
    counts: Counts | None = None,
    *,
    retention: timedelta | None = None,
    progress: Callable[[Counts], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Counts:
    """Delete workflows that ended before the retention, children first, in bounded transactions.

    It can be stopped and begun again at any point; ``stop`` is asked before each batch.
    """
    counts = counts or Counts()
    keep = settings.RETENTION if retention is None else retention
    if keep is None:
        return counts
    before = clock.now(using) - keep
    for state in ENDED:
        last: tuple[Any, Any] | None = None
        while not stop():
            batch = list(_ended(using, state, before, last)[: settings.CLEANUP_BATCH_SIZE])
            if not batch:
                break
            last = batch[-1]
            _delete_batch(using, [pk for _, pk in batch], counts)
            if progress is not None:
                progress(counts)
    return counts


def _ended(using: str, state: str, before: datetime, after: tuple[Any, Any] | None) -> Any:
    """Return (moment, key) of what ended before, in that order, from behind ``after``.

    From where the last batch ended, so that rows that cannot go are passed over once.
    """
    rows = Workflow.objects.using(using).filter(state=state, transitioned_at__lt=clock.local(before))
    if after is not None:
        # The first condition alone says it too, and is the one that an index can be entered by.
        rows = rows.filter(
            Q(transitioned_at__gt=after[0]) | Q(pk__gt=after[1]), transitioned_at__gte=after[0]
        )
    return rows.order_by("transitioned_at", "pk").values_list("transitioned_at", "pk")


def _delete_batch(using: str, keys: list[Any], counts: Counts) -> None:
    try:
        deleted = in_transaction(using, partial(_delete, using, keys))
    except (ProtectedError, RestrictedError, IntegrityError):
        if len(keys) == 1:
            logger.warning(
                "Workflow %s is kept: the project's own rows protect it.",
                keys[0],
                extra=about(workflow_id=keys[0]),
            )
            counts.protected += 1
            return
        middle = len(keys) // 2
        _delete_batch(using, keys[:middle], counts)
        _delete_batch(using, keys[middle:], counts)
        return
    counts.workflows += deleted.workflows
    counts.executions += deleted.executions
    counts.signals += deleted.signals
    counts.operator_actions += deleted.operator_actions


def _delete(using: str, keys: list[Any]) -> Counts:
    features = connections[using].features
    write_first(Workflow, keys[0], using)
    rows = Workflow.objects.using(using).filter(pk__in=keys, state__in=ENDED)
    if features.has_select_for_update:
        # Another clean-up, or an operator, may be at some of them; those are left for the next pass.
        rows = rows.select_for_update(skip_locked=features.has_select_for_update_skip_locked)
    locked = set(rows.values_list("pk", flat=True))
    # An old body may still run in a workflow that was canceled: its end must find its rows.
    running = StepExecution.objects.using(using).filter(
        workflow_id__in=locked, state=ExecutionState.IN_PROGRESS
    )
    locked -= set(running.values_list("workflow_id", flat=True))
    executions, _ = StepExecution.objects.using(using).filter(workflow_id__in=locked).delete()
    signals, _ = Signal.objects.using(using).filter(workflow_id__in=locked).delete()
    actions, _ = OperatorAction.objects.using(using).filter(workflow_id__in=locked).delete()
    _, by_model = _delete_workflows(using, locked)
    return Counts(
        workflows=by_model.get("geneva_drive.Workflow", 0),
        executions=executions,
        signals=signals,
        operator_actions=actions,
    )


def _delete_workflows(using: str, keys: set[Any]) -> tuple[int, dict[str, int]]:
    rows = Workflow.objects.using(using).filter(pk__in=keys).defer("metadata", "job_options", "ongoing_key")
    workflows = list(rows)
    for workflow in workflows:
        # As the base class: for hidden proxies Django sends no delete signals.
        workflow.__class__ = Workflow
    collector = Collector(using=using)
    collector.collect(workflows)
    return collector.delete()
