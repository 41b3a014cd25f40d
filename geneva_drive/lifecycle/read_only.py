"""What hangs on an instance while conditions and matchers look at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn

from django.db import transaction

from geneva_drive.exceptions import InvalidStateError
from geneva_drive.lifecycle.locking import alias_of
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow


class _OnlyReading:
    """Flow words are not theirs to say, nor may they send signals: they run under the lock."""

    only_reads = True

    def __init__(self, execution: StepExecution) -> None:
        self.execution = execution

    def leave(self, how: str, **_: Any) -> NoReturn:
        raise InvalidStateError(
            f"{how}() was called in a condition or a hook. They only look; decide inside the step."
        )

    def __getattr__(self, name: str) -> Any:
        raise InvalidStateError(f"{name} can be used only inside a step.")


@contextmanager
def read_only(workflow: Workflow, execution: StepExecution, *, savepoint: bool = True) -> Iterator[None]:
    """Let the project's code look at a locked workflow.

    Parameters
    ----------
    savepoint
        Whether it may make queries of its own: one that fails must not take down what was done before it.
    """
    before = workflow._step
    workflow._step = _OnlyReading(execution)
    try:
        with transaction.atomic(using=alias_of(workflow)) if savepoint else nullcontext():
            yield
    finally:
        workflow._step = before
