"""Clean-up: delete workflows that ended before the retention, with all their records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import IntegrityError, connections
from django.db.models import ProtectedError, RestrictedError
from django.db.models.deletion import Collector

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.housekeeping.counts import Counts
from geneva_drive.lifecycle.locking import write_first
from geneva_drive.lifecycle.unit_of_work import in_transaction
from geneva_drive.logs import about
from geneva_drive.models.records import OperatorAction, Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ENDED

logger = logging.getLogger("geneva_drive.housekeeping")


def clean_up(
    using: str,
    counts: Counts | None = None,
    *,
    retention: timedelta | None = None,
    progress: Callable[[Counts], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Counts:
    """Delete workflows that ended before the retention, in one transaction per batch.

    Parameters
    ----------
    retention
        How long to keep them. Default: the setting ``RETENTION``.
    progress
        Called after each batch.
    stop
        Asked before each batch: whether to end early. The next clean-up continues.
    """
    counts = counts or Counts()
    keep = settings.RETENTION if retention is None else retention
    if keep is None:
        return counts
    before = clock.now(using) - keep
    for state in ENDED:
        # In pages, so that rows that cannot be deleted are tried once.
        for page in _ended(using, state, before).pages(
            by="transitioned_at", size=settings.CLEANUP_BATCH_SIZE
        ):
            if stop():
                return counts
            _delete_batch(using, [pk for _, pk in page], counts)
            if progress is not None:
                progress(counts)
    return counts


def _ended(using: str, state: str, before: datetime) -> Any:
    return Workflow.objects.using(using).filter(state=state, transitioned_at__lt=clock.local(before))


def _delete_batch(using: str, keys: list[Any], counts: Counts) -> None:
    try:
        deleted = in_transaction(using, partial(_delete, using, keys))
    except (ProtectedError, RestrictedError, IntegrityError):
        if len(keys) == 1:
            extra = about(workflow_id=keys[0])
            logger.warning(
                "Workflow %s is past its retention but was not deleted: rows of the "
                "project refer to it with on_delete=PROTECT.",
                keys[0],
                extra=extra,
            )
            counts.protected += 1
            return
        middle = len(keys) // 2
        _delete_batch(using, keys[:middle], counts)
        _delete_batch(using, keys[middle:], counts)
        return
    for name, count in deleted.as_dict().items():
        setattr(counts, name, getattr(counts, name) + count)


def _delete(using: str, keys: list[Any]) -> Counts:
    features = connections[using].features
    write_first(keys[0], using)
    rows = Workflow.objects.using(using).filter(pk__in=keys, state__in=ENDED)
    if features.has_select_for_update:
        # Those that another clean-up or an operator has locked are left for the next pass.
        rows = rows.select_for_update(skip_locked=features.has_select_for_update_skip_locked)
    locked = set(rows.values_list("pk", flat=True))
    # A canceled workflow's step may still be running, and writes to its rows when it ends.
    running = StepExecution.objects.using(using).in_progress().filter(workflow_id__in=locked)
    locked -= set(running.values_list("workflow_id", flat=True))
    executions, _ = StepExecution.objects.using(using).filter(workflow_id__in=locked).delete()
    signals, _ = Signal.objects.using(using).filter(workflow_id__in=locked).delete()
    actions, _ = OperatorAction.objects.using(using).filter(workflow_id__in=locked).delete()
    # As the base class: Django sends no delete signals for hidden proxies.
    rows = Workflow.objects.using(using).filter(pk__in=locked).defer("metadata", "job_options", "ongoing_key")
    workflows = list(rows)
    for workflow in workflows:
        workflow.__class__ = Workflow
    collector = Collector(using=using)
    collector.collect(workflows)
    _, by_model = collector.delete()
    count = by_model.get("geneva_drive.Workflow", 0)
    return Counts(workflows=count, executions=executions, signals=signals, operator_actions=actions)
