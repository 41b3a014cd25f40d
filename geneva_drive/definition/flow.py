"""What ``pause()``, ``skip()`` and the like raise inside a step.

They derive from BaseException, so that a step's own ``except Exception`` cannot swallow them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

from geneva_drive.definition.validation import checked_duration


class FlowControl(BaseException):
    """A step's decision about its workflow, on the way from the step's body to the executor.

    Attributes
    ----------
    reason
        What the step said about it, for the record. May be empty.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason

    @property
    def word(self) -> str:
        """What the step called: ``"pause"``, ``"skip"`` and so on."""
        return type(self).__name__.lower()


class Cancel(FlowControl):
    """Cancel the workflow."""


class Pause(FlowControl):
    """Pause the workflow at this step. Resuming runs the step again."""


class Skip(FlowControl):
    """Leave this step and go on to the next."""


class Finish(FlowControl):
    """Finish the workflow now, whatever steps are left."""


class Reattempt(FlowControl):
    """Run this step again in a new execution.

    Attributes
    ----------
    wait
        How long after now, from zero.
    rewind
        Whether a resumable step starts from its beginning and not from its cursor.
    """

    def __init__(self, wait: timedelta | None = None, rewind: bool = False, reason: str = "") -> None:
        super().__init__(reason)
        self.wait = timedelta(0) if wait is None else checked_duration(wait)
        self.rewind = rewind


class Suspend(FlowControl):
    """Stop a resumable step here and go on from its cursor in a new execution.

    Also what a checkpoint raises when the loop has to stop; `reason` then says why.

    Attributes
    ----------
    wait
        How long after now, from zero.
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
    """Whether this is the step's own failure, and not what ends processes (``SystemExit`` and its kind).

    A group that holds both flow control and a real error is a ``BaseExceptionGroup``, and a failure.
    """
    leaves = list(_leaves(error))
    return any(isinstance(leaf, Exception) for leaf in leaves) and all(
        isinstance(leaf, Exception | FlowControl | asyncio.CancelledError) for leaf in leaves
    )


def unwrap(error: BaseException) -> FlowControl | None:
    """Return the flow control in `error`, or None when a real error has to be dealt with.

    A TaskGroup wraps what its tasks raise in an exception group. When one task paused the workflow and
    another one failed, the failure is what must not get lost, so that group counts as an error.
    """
    found: FlowControl | None = None
    for leaf in _leaves(error):
        if isinstance(leaf, FlowControl):
            found = found or leaf
        elif not isinstance(leaf, asyncio.CancelledError):
            return None
    return found
