"""Loops that do nothing, so that only checkpoints are measured."""

from __future__ import annotations

import resource
from typing import Any

from benchmarks.app.models import Thing
from geneva_drive import Iteration, Workflow, resumable_step

memory: list[int] = []
"""Peak memory of this process in MiB, measured at every tenth of a loop over rows."""


class _Loop(Workflow):
    may_proceed_without_hero = True

    class Meta:
        abstract = True
        app_label = "app"

    def count(self, iteration: Iteration) -> None:
        for _ in iteration.iterate(range(_items(self))):
            pass

    def read_rows(self, iteration: Iteration) -> None:
        tenth = max(1, _items(self) // 10)
        for _ in iteration.iterate_queryset(Thing._default_manager.all(), total=True):
            if iteration.iterations % tenth == tenth - 1:
                memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


class Short(_Loop):
    """One item, to create a row."""

    @resumable_step
    def loop(self, iteration: Iteration) -> None:
        self.count(iteration)


class EachItem(_Loop):
    @resumable_step
    def loop(self, iteration: Iteration) -> None:
        self.count(iteration)


class EveryHundred(_Loop):
    @resumable_step(checkpoint_every=100)
    def loop(self, iteration: Iteration) -> None:
        self.count(iteration)


class EachRow(_Loop):
    @resumable_step
    def loop(self, iteration: Iteration) -> None:
        self.read_rows(iteration)


class EveryHundredRows(_Loop):
    @resumable_step(checkpoint_every=100)
    def loop(self, iteration: Iteration) -> None:
        self.read_rows(iteration)


def _items(workflow: Any) -> int:
    return int(workflow.metadata)
