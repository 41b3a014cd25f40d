"""Flow control: the exceptions that ``pause()``, ``skip()`` and the like raise inside a step.

They derive from BaseException, so that an ``except Exception`` in the step does not catch them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

from geneva_drive.definition.validation import checked_duration


class FlowControl(BaseException):
    """A step's decision about its workflow, raised in the body and caught by the executor.

    ``reason`` is the step's own text for the records. May be empty.
    """

    wait: timedelta | None = None
    rewind = False

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason

    @property
    def word(self) -> str:
        """The method that the step called: ``"pause"``, ``"skip"`` and so on."""
        return type(self).__name__.lower()


class Cancel(FlowControl):
    """Cancel the workflow."""


class Pause(FlowControl):
    """Pause the workflow at this step. Resuming runs the step again."""


class Skip(FlowControl):
    """Skip this step and continue with the next."""


class Finish(FlowControl):
    """Finish the workflow now, whatever steps are left."""


class Reattempt(FlowControl):
    """Run this step again in a new execution, after ``wait``; with ``rewind`` not from its cursor."""

    def __init__(self, wait: timedelta | None = None, rewind: bool = False, reason: str = "") -> None:
        super().__init__(reason)
        self.wait = timedelta(0) if wait is None else checked_duration(wait)
        self.rewind = rewind


class Suspend(FlowControl):
    """Stop a resumable step, and continue from its cursor in a new execution after ``wait``.

    A checkpoint raises it too when the loop has to stop; `reason` then says why.
    """

    def __init__(self, wait: timedelta | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.wait = timedelta(0) if wait is None else checked_duration(wait)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def is_failure(error: BaseException) -> bool:
    """Whether an exception is a failure of the step, and not one that ends the process, like ``SystemExit``.

    An exception group that holds both flow control and an error is a failure.
    """
    leaves = list(_leaves(error))
    return any(isinstance(leaf, Exception) for leaf in leaves) and all(
        isinstance(leaf, Exception | FlowControl | asyncio.CancelledError) for leaf in leaves
    )


def unwrap(error: BaseException) -> FlowControl | None:
    """Return the flow control in `error`, or None if it is or contains an error.

    A TaskGroup wraps the exceptions of its tasks in a group. If one task paused the workflow and another one
    failed, the failure must not get lost, so the group is an error.
    """
    found: FlowControl | None = None
    for leaf in _leaves(error):
        if isinstance(leaf, FlowControl):
            found = found or leaf
        elif not isinstance(leaf, asyncio.CancelledError):
            return None
    return found
