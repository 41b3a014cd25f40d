"""Recovery and clean-up: what makes the rows an obligation and not a hope."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, connections, router
from django.db.models import ProtectedError, Q, RestrictedError
from django.db.models.deletion import Collector

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.execution.heartbeat import remove_row
from geneva_drive.execution.parked import wake_parked
from geneva_drive.execution.recovery import recover_one
from geneva_drive.execution.timeouts import expire_due
from geneva_drive.lifecycle import outbox
from geneva_drive.lifecycle.locking import in_transaction, may_pass, write_first
from geneva_drive.logs import about
from geneva_drive.models.operator_action import OperatorAction
from geneva_drive.models.process import Process
from geneva_drive.models.signal import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ENDED, ExecutionState

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from uuid import UUID

__all__ = ["Counts", "buckets", "clean_up", "feed", "forget_dispatched", "housekeep", "recover", "redispatch"]

logger = logging.getLogger("geneva_drive.housekeeping")

_DISPATCH_BATCH = 1000

_OWN_TIME = timedelta(seconds=5)
"""A row younger than this is still its own sender's, which may be between the commit and the sending."""

_FAILURES = 3
"""After so many in a row the others of a queue wait for the next pass: a broker that is gone stays gone."""


@dataclass
class Counts:
    """Rows that one pass dealt with."""

    recovered: int = 0
    fed: int = 0
    redispatched: int = 0
    woken: int = 0
    expired: int = 0
    processes: int = 0
    workflows: int = 0
    executions: int = 0
    signals: int = 0
    operator_actions: int = 0
    protected: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def housekeep(using: str | None = None, *, progress: Callable[[Counts], None] | None = None) -> Counts:
    """One pass of everything. ``progress`` is called after each batch of the clean-up."""
    alias = using or router.db_for_write(Workflow)
    counts = Counts()
    recover(alias, counts)
    feed(alias, counts)
    redispatch(alias, counts)
    counts.woken += wake_parked(alias)
    counts.expired += expire_due(alias)
    clean_up(alias, counts, progress=progress)
    return counts


# -- recovery


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
    # From one process to the next by the index: as many look-ups as there are processes, however many rows
    # they have in hand.
    in_progress = StepExecution.objects.using(using).filter(state=ExecutionState.IN_PROGRESS)
    last: UUID | None = None
    while True:
        rows = in_progress.filter(process_id__isnull=False)
        if last is not None:
            rows = rows.filter(process_id__gt=last)
        last = rows.order_by("process_id").values_list("process_id", flat=True).first()
        if last is None:
            return
        if last not in known and _is_dead(using, last):
            yield last


# -- dispatching again


def buckets(using: str, queues: list[str] | None = None) -> list[tuple[int, str]]:
    """Return the (priority, queue) pairs that have something scheduled, most urgent first.

    Found by going from one to the next through the index of what is due, so that it costs two look-ups a
    pair, however many rows there are.
    """
    rows = StepExecution.objects.using(using).free()
    found: list[tuple[int, str]] = []
    for queue in queues if queues is not None else _each(rows, "queue"):
        found.extend((priority, queue) for priority in _each(rows.filter(queue=queue), "priority"))
    return sorted(found)


def _each(rows: Any, column: str) -> Iterator[Any]:
    value = rows.order_by(column).values_list(column, flat=True).first()
    while value is not None:
        yield value
        value = (
            rows.filter(**{f"{column}__gt": value}).order_by(column).values_list(column, flat=True).first()
        )


def feed(using: str, counts: Counts | None = None) -> Counts:
    """Dispatch what comes within the dispatcher's reach and has not been dispatched yet.

    That is what waits longer than a broker should be told of, and what could not be sent when it was
    written. Feeders may run side by side.
    """
    counts = counts or Counts()
    dispatcher = outbox.configured_dispatcher()
    if not dispatcher.remembers:
        return counts  # every claim looks at the tables themselves
    now = clock.now(using)
    reach = dispatcher.reach()
    rows = StepExecution.objects.using(using).filter(state=ExecutionState.SCHEDULED, held=False)
    if reach is not None:
        rows = rows.filter(scheduled_for__lte=clock.local(now + reach))
    rows = rows.filter(dispatched_at__isnull=True, created_at__lt=clock.local(now - _OWN_TIME))
    counts.fed += _dispatch_forgotten(using, rows, before=now - settings.OVERDUE_AFTER)
    return counts


def redispatch(using: str, counts: Counts | None = None) -> Counts:
    """Dispatch again what is overdue and whose job never came: the same rows, no attempt used."""
    counts = counts or Counts()
    if not outbox.configured_dispatcher().remembers:
        return counts
    before = clock.now(using) - settings.OVERDUE_AFTER
    forgotten = Q(dispatched_at__isnull=True) | Q(dispatched_at__lt=clock.local(before))
    rows = StepExecution.objects.using(using).due(clock.local(before)).filter(forgotten)
    counts.redispatched += _dispatch_forgotten(using, rows, before=before)
    return counts


def _dispatch_forgotten(using: str, rows: Any, *, before: datetime) -> int:
    """Dispatch rows, one queue and priority after the other so that the index of what is due is used."""
    dispatched = 0
    for priority, queue in buckets(using):
        found = (
            rows.filter(queue=queue, priority=priority)
            .defer("error_message", "error_traceback", "cursor", "metadata")
            .order_by("scheduled_for")[:_DISPATCH_BATCH]
        )
        failures = 0
        for execution in found:
            sent = outbox.dispatch_forgotten(execution, before)
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
    while keys := list(
        rows.filter(dispatched_at__isnull=False).values_list("pk", flat=True)[:_DISPATCH_BATCH]
    ):
        # In bounded statements: each locks rows that other processes begin at this moment.
        forgotten += rows.filter(pk__in=keys).update(dispatched_at=None, job_id=None)
    return forgotten


# -- clean-up


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
