"""Loops that record what they did, with an action at one of their items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from geneva_drive import Iteration, StepExecution, Workflow, resumable_step, step
from tests.execution.support import Free, trace

HOOK: list[Callable[[Any, Iteration], None]] = []
"""What the next body does in addition to its loop."""


def at(number: int, act: Callable[[Any, Iteration], None]) -> None:
    """Do something at one item of the loops below, once."""

    def hook(workflow: Any, iteration: Iteration) -> None:
        if trace and trace[-1] == number:
            HOOK.clear()
            act(workflow, iteration)

    HOOK.append(hook)


class CountingLoop(Free):
    """Ten items, recorded one by one."""

    def loop(self, iteration: Iteration) -> None:
        for item in iteration.iterate(range(10)):
            trace.append(item)
            for hook in list(HOOK):
                hook(self, iteration)

    @resumable_step
    def count(self, iteration: Iteration) -> None:
        self.loop(iteration)

    @step
    def after(self) -> None:
        trace.append("after")


class SparingLoop(CountingLoop):
    """The same with a checkpoint every four items."""

    @resumable_step(checkpoint_every=4)
    def count(self, iteration: Iteration) -> None:
        self.loop(iteration)


def rows(workflow: Workflow) -> list[StepExecution]:
    return list(StepExecution.objects.filter(workflow_id=workflow.pk).order_by("pk"))


def stop(*_: Any) -> None:
    raise RuntimeError("the mail server is away")
