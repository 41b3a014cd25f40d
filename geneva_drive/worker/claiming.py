"""Claiming is preparing: what a claim returns is in progress, named after this process.

The scan finds candidates through the index of what is due, one queue and priority after the other, so that
it costs the same with a million rows that are finished, paused or due next month. Then their workflows are
locked one by one, passing over what others have locked, and each is prepared in a transaction of its own.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from django.db import connections, transaction

from geneva_drive import clock
from geneva_drive.events import Pending
from geneva_drive.execution import prepare
from geneva_drive.execution.fast_path import Candidate, begin_at_once
from geneva_drive.execution.perform import ClaimedExecution
from geneva_drive.execution.runner import Runner
from geneva_drive.lifecycle.locking import in_transaction, lock_execution, lock_workflow, may_pass
from geneva_drive.logs import about
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow

logger = logging.getLogger("geneva_drive.worker")

_PAGE = 20
"""Candidates looked at in one go, beyond what is wanted: others may have taken the first."""

_REMEMBERED = 0.2
"""Seconds for which a busy worker believes what it has seen."""

_ALONE_AFTER = 1.0
"""Seconds for which a worker looks anew each time, once another one was faster with what it had seen."""


class CandidateCache:
    """What a worker has seen of what is due, for a moment: it claims hundreds of times a second.

    It would otherwise spend more on looking than on claiming. What it has seen is where to look, no more:
    each claim asks again, under the lock, whether the row is still there to be had. Something more urgent
    is seen so much later. Workers that share a queue would go for the same rows, so that one that finds
    somebody before it remembers no rows for a while.

    Parameters
    ----------
    queues
        Names, or None for all.
    """

    def __init__(self, using: str, queues: list[str] | None) -> None:
        self._using = using
        self._queues = queues
        self._buckets: list[tuple[int, str]] = []
        self._until = 0.0
        self._rest: dict[tuple[int, str], deque[Candidate]] = {}
        self._shared_until = 0.0

    def buckets(self) -> tuple[list[tuple[int, str]], bool]:
        """Return the (priority, queue) pairs that have something scheduled, and whether from memory."""
        remembered = time.monotonic() < self._until
        if not remembered:
            self.forget()
            self._buckets = StepExecution.objects.using(self._using).buckets(self._queues)
            self._until = time.monotonic() + _REMEMBERED
        return list(self._buckets), remembered

    def candidates(self, bucket: tuple[int, str], limit: int) -> Iterator[Candidate]:
        """Yield what is due in this bucket, oldest first, until there is nothing more."""
        # What is left of the last look; somebody else's being faster empties it.
        while left := self._rest.get(bucket):
            yield left.popleft()
        priority, queue = bucket
        for page in _pages(self._using, queue, priority, limit):
            rest = deque(page)
            if time.monotonic() >= self._shared_until:
                self._rest[bucket] = rest
            while rest:
                yield rest.popleft()

    def forget(self) -> None:
        """Believe nothing any more: it led nowhere."""
        self._until = 0.0
        self._rest.clear()

    def is_shared(self) -> None:
        """A row was not to be had: others are after the same ones."""
        self._shared_until = time.monotonic() + _ALONE_AFTER
        self._rest.clear()


def claim(using: str, candidates: CandidateCache, limit: int, runner: Runner) -> Iterator[ClaimedExecution]:
    """Claim up to ``limit`` executions that are due, the most urgent first.

    Each is committed when it is yielded: whatever goes wrong later, it is there to be run.
    """
    found, remembered = candidates.buckets()
    # Queues of one priority take turns: a long one must not keep the others waiting.
    found.sort(key=lambda bucket: (bucket[0], random.random()))
    count = 0
    for bucket in found:
        for candidate in candidates.candidates(bucket, limit):
            claimed = _claim_one(candidate, runner, using)
            if claimed is None:
                candidates.is_shared()
                continue
            yield claimed
            count += 1
            if count >= limit:
                return
    if not count:
        candidates.forget()
        if remembered:
            # What woke the worker may lie on a queue that is new: nobody wakes it for that again.
            yield from claim(using, candidates, limit, runner)


def is_anything_due(using: str, queues: list[str] | None) -> bool:
    """Whether a claim may find something now or as soon as others let go of it."""
    rows = StepExecution.objects.using(using)
    due = rows.due(clock.now(using)).order_by("scheduled_for").values_list("pk")
    # In the index's order: an ``exists()`` may go through the whole table, hoping for an early find.
    return any(
        due.filter(queue=queue, priority=priority).first() is not None
        for priority, queue in rows.buckets(queues)
    )


def _pages(using: str, queue: str, priority: int, limit: int) -> Iterator[list[Candidate]]:
    """Yield what is due in this bucket, oldest first, until there is nothing more."""
    rows = StepExecution.objects.using(using).due(clock.now(using)).filter(queue=queue, priority=priority)
    seen: list[Any] = []
    since = None
    while True:
        page = rows if since is None else rows.filter(scheduled_for__gte=since).exclude(pk__in=seen)
        found = list(
            page.order_by("scheduled_for").values_list("scheduled_for", *Candidate.COLUMNS)[: limit + _PAGE]
        )
        if not found:
            return
        yield [Candidate(*columns) for _, *columns in found]
        # Several rows may be due at the same moment: those of it that were seen are left out by key.
        last = found[-1][0]
        seen = [pk for moment, pk, *_ in found if moment == last] + (seen if since == last else [])
        since = last


def _claim_one(candidate: Candidate, runner: Runner, using: str) -> ClaimedExecution | None:
    plain = begin_at_once(candidate, runner, using, skip_locked=True)
    if plain is not None:
        return plain
    # Not plain, or taken by somebody else: this way looks again.
    pending = Pending()

    def work() -> ClaimedExecution | None:
        pending.clear()
        workflow = _lock_unless_locked(candidate.workflow_id, using)
        if workflow is None:
            return None
        return _prepare_in_savepoint(workflow, candidate.execution_id, runner, pending, using)

    claimed = in_transaction(using, work)
    pending.send()
    return claimed


def _lock_unless_locked(workflow_id: Any, using: str) -> Workflow | None:
    if not connections[using].features.has_select_for_update_skip_locked:
        # Begun by a write on SQLite, so that two never claim the same.
        return lock_workflow(Workflow, workflow_id, using)
    rows = Workflow._base_manager.using(using).defer("ongoing_key").select_for_update(skip_locked=True)
    return rows.filter(pk=workflow_id).first()


def _prepare_in_savepoint(
    workflow: Workflow, execution_id: Any, runner: Runner, pending: Pending, using: str
) -> ClaimedExecution | None:
    execution = lock_execution(workflow, execution_id)
    if execution is None:
        return None
    mine = Pending()
    try:
        with transaction.atomic(using=using):
            claimed = prepare.prepare_locked(workflow, execution, runner, mine)
    except Exception as error:
        if may_pass(error, using):
            raise
        extra = about(workflow, execution)
        logger.exception("Execution %s could not be prepared.", execution_id, extra=extra)
        claimed = None
        prepare.defer_unprepared(workflow.pk, execution_id, error, using, mine)
    pending.extend(mine)
    return claimed
