"""Housekeeping: recovery, redelivery and clean-up, as one list of chores.

``geneva_housekeeping`` does all of them once; workers and feeders do each as often as the list says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.db import router

from geneva_drive.execution.signal_timeouts import expire_due
from geneva_drive.housekeeping.counts import Counts
from geneva_drive.housekeeping.dead_processes import recover
from geneva_drive.housekeeping.redispatch import feed, forget_dispatched, redispatch
from geneva_drive.housekeeping.retention import clean_up
from geneva_drive.housekeeping.waiting_steps import wake_waiting
from geneva_drive.models.workflow import Workflow

__all__ = [
    "CHORES",
    "Chore",
    "Counts",
    "clean_up",
    "feed",
    "forget_dispatched",
    "housekeep",
    "recover",
    "redispatch",
]


@dataclass(frozen=True)
class Chore:
    """One task of housekeeping, and how often a process that stays does it.

    Attributes
    ----------
    run
        Called with the database's alias and the counts to add to.
    every
        Seconds between two runs. None: twice per lease.
    at_start
        Whether the first run is at the start of the process, or ``every`` seconds later.
    by_feeder
        Whether a feeder runs it at each of its polls.
    in_batches
        Whether ``run`` takes ``progress`` and ``stop``.
    """

    run: Callable[..., object]
    every: float | None = None
    at_start: bool = True
    by_feeder: bool = False
    in_batches: bool = False


def _wake_waiting(using: str, counts: Counts) -> None:
    counts.woken += wake_waiting(using)


def _expire(using: str, counts: Counts) -> None:
    counts.expired += expire_due(using)


CHORES = (
    # What a dead predecessor left behind should not wait.
    Chore(recover),
    Chore(feed, by_feeder=True),
    Chore(redispatch),
    # At the start, since it is a deploy that changes what steps wait for.
    Chore(_wake_waiting, every=300),
    Chore(_expire, by_feeder=True),
    Chore(clean_up, every=3600, at_start=False, in_batches=True),
)


def housekeep(
    using: str | None = None,
    chores: Iterable[Chore] | None = None,
    *,
    progress: Callable[[Counts], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Counts:
    """Do chores once, all of them by default.

    Parameters
    ----------
    progress
        Called after each batch of the clean-up.
    stop
        Asked before each batch: whether to end the clean-up early.
    """
    alias = using or router.db_for_write(Workflow)
    counts = Counts()
    for chore in CHORES if chores is None else chores:
        if chore.in_batches:
            chore.run(alias, counts, progress=progress, stop=stop)
        else:
            chore.run(alias, counts)
    return counts
