"""Workflows whose first step follows a script, one entry per attempt."""

from __future__ import annotations

from typing import Any, ClassVar

from geneva_drive import Workflow, step
from geneva_drive.models import StepExecution


class Busy(Exception):
    pass


class Script(list[Any]):
    """What each attempt at a step does, and what was observed."""

    def __call__(self, workflow: Workflow) -> None:
        Scripted.runs += 1
        todo = self.pop(0) if len(self) > 1 else self[0]
        if isinstance(todo, BaseException):
            # Without what earlier attempts left on it: the same error may be raised a hundred times.
            raise todo.with_traceback(None)
        if todo is not None:
            todo(workflow)


class Scripted(Workflow):
    """Runs a script in its first step."""

    may_proceed_without_hero = True
    script: ClassVar[Script]
    runs: ClassVar[int] = 0
    handled: ClassVar[list[Any]] = []

    class Meta:
        abstract = True
        app_label = "testapp"


def play(cls: type[Scripted], *script: Any, **given: Any) -> Any:
    """Start a workflow whose first step follows this script; the last entry is repeated."""
    Scripted.script = Script(script)
    return cls.start(**given)


def rows(workflow: Workflow) -> list[StepExecution]:
    return list(workflow.executions.order_by("pk"))


class FailsShort(Scripted):
    @step(on_exception="reattempt")
    def work(self) -> None:
        self.script(self)
