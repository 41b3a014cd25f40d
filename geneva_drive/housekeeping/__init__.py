"""Recovery and clean-up: what makes the rows an obligation and not a hope."""

from __future__ import annotations

from collections.abc import Callable

from django.db import router

from geneva_drive.execution.signal_timeouts import expire_due
from geneva_drive.housekeeping.counts import Counts
from geneva_drive.housekeeping.dead_processes import recover
from geneva_drive.housekeeping.redispatch import feed, forget_dispatched, redispatch
from geneva_drive.housekeeping.retention import clean_up
from geneva_drive.housekeeping.waiting_steps import wake_waiting
from geneva_drive.models.workflow import Workflow

__all__ = ["Counts", "clean_up", "feed", "forget_dispatched", "housekeep", "recover", "redispatch"]


def housekeep(using: str | None = None, *, progress: Callable[[Counts], None] | None = None) -> Counts:
    """One pass of everything. ``progress`` is called after each batch of the clean-up."""
    alias = using or router.db_for_write(Workflow)
    counts = Counts()
    recover(alias, counts)
    feed(alias, counts)
    redispatch(alias, counts)
    counts.woken += wake_waiting(alias)
    counts.expired += expire_due(alias)
    clean_up(alias, counts, progress=progress)
    return counts
