"""Claiming: find what is due and prepare it; a claimed execution is in progress, with this process's name on it.

The scan reads the index of what is due, one queue and priority after the other, so that its cost does not depend
on rows that are finished, paused or due later. Then it locks the workflows one by one, skips those that others
have locked, and prepares each execution in a transaction of its own.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from geneva_drive import clock
from geneva_drive.execution import prepare
from geneva_drive.execution.fast_path import Candidate
from geneva_drive.execution.perform import ClaimedExecution
from geneva_drive.execution.runner import Runner
from geneva_drive.models.step_execution import StepExecution

_PAGE = 20
"""Candidates read beyond what is wanted, since other workers may have taken the first."""

_CACHED_FOR = 0.2
"""Seconds for which a busy worker uses what it has read."""

_UNCACHED_FOR = 1.0
"""Seconds for which a worker keeps no candidates after another worker has taken one of them."""


class CandidateCache:
    """Executions that are due, kept for a moment, since a busy worker claims hundreds of times a second.

    It says where to look, no more: each claim checks the row again under the lock. More urgent executions are
    noticed later by as much as the cache is old. Workers that share a queue would try to claim the same rows, so
    one that loses a candidate to another worker keeps none for a while.
    """

    def __init__(self, using: str, queues: list[str] | None) -> None:
        self._using = using
        self._queues = queues
        self._buckets: list[tuple[int, str]] = []
        self._buckets_until = 0.0
        self._candidates: dict[tuple[int, str], deque[Candidate]] = {}
        self._uncached_until = 0.0

    def buckets(self) -> tuple[list[tuple[int, str]], bool]:
        """Return the (priority, queue) pairs that have something scheduled, and whether from the cache."""
        cached = time.monotonic() < self._buckets_until
        if not cached:
            self.drop()
            self._buckets = StepExecution.objects.using(self._using).buckets(self._queues)
            self._buckets_until = time.monotonic() + _CACHED_FOR
        return list(self._buckets), cached

    def candidates(self, bucket: tuple[int, str], limit: int) -> Iterator[Candidate]:
        """Yield what is due in this bucket, oldest first: the cached ones, then page after page."""
        while cached := self._candidates.get(bucket):
            yield cached.popleft()
        priority, queue = bucket
        for page in _pages(self._using, queue, priority, limit):
            rest = deque(page)
            if time.monotonic() >= self._uncached_until:
                self._candidates[bucket] = rest
            while rest:
                yield rest.popleft()

    def drop(self) -> None:
        """Drop everything: the next claim reads it again."""
        self._buckets_until = 0.0
        self._candidates.clear()

    def lost_candidate(self) -> None:
        """Drop the candidates, and keep none for a while: another worker claims the same ones."""
        self._uncached_until = time.monotonic() + _UNCACHED_FOR
        self._candidates.clear()


def claim(using: str, candidates: CandidateCache, limit: int, runner: Runner) -> Iterator[ClaimedExecution]:
    """Claim up to ``limit`` executions that are due, the most urgent first.

    Each is committed when it is yielded, so an error with a later one does not lose it.
    """
    buckets, cached = candidates.buckets()
    # In random order within a priority: a long queue must not keep the others waiting.
    buckets.sort(key=lambda bucket: (bucket[0], random.random()))
    count = 0
    for bucket in buckets:
        for candidate in candidates.candidates(bucket, limit):
            claimed = prepare.claim(candidate, runner, using, skip_locked=True)
            if claimed is None:
                candidates.lost_candidate()
                continue
            yield claimed
            count += 1
            if count >= limit:
                return
    if not count:
        candidates.drop()
        if cached:
            # What woke the worker may be on a new queue, and it is not woken for that again.
            yield from claim(using, candidates, limit, runner)


def is_anything_due(using: str, queues: list[str] | None) -> bool:
    """Whether a claim may find something, now or after others have released their locks."""
    rows = StepExecution.objects.using(using)
    due = rows.due(clock.now(using)).order_by("scheduled_for").values_list("pk")
    # In the index's order: for an ``exists()`` some databases scan the whole table.
    return any(
        due.filter(queue=queue, priority=priority).first() is not None
        for priority, queue in rows.buckets(queues)
    )


def _pages(using: str, queue: str, priority: int, limit: int) -> Iterator[list[Candidate]]:
    """Yield pages of what is due in this bucket, oldest first."""
    rows = StepExecution.objects.using(using).due(clock.now(using)).filter(queue=queue, priority=priority)
    # By time alone and not by ``QuerySet.pages``: the index has no key to order by, and thousands of rows that
    # are due at the same moment would be sorted for each claim.
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
        # Rows that are due at the same moment as the last one may have been seen already.
        last = found[-1][0]
        seen = [pk for moment, pk, *_ in found if moment == last] + (seen if since == last else [])
        since = last
