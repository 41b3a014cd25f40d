"""Where a loop stands, and when that is written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition import flow
from geneva_drive.execution.checkpoints import Answer, Checkpoints
from geneva_drive.execution.limits import Limits
from geneva_drive.logs import about
from geneva_drive.serialization import dumps

if TYPE_CHECKING:
    from geneva_drive.models.step_execution import StepExecution

__all__ = ["Position"]

logger = logging.getLogger("geneva_drive.step")


class Position:
    """The cursor of one execution of a loop, with what is counted beside it.

    Parameters
    ----------
    where
        For messages: the workflow and its step.
    note_progress
        Called when the loop has got further, and that is written.

    Attributes
    ----------
    cursor
        As it was set last; None at the beginning.
    total
        Items in all; None when nobody knows.
    iterations
        Items done, in this execution and in those that it goes on from.
    done_here
        Items done in this execution.
    """

    def __init__(
        self,
        execution: StepExecution,
        checkpoints: Checkpoints,
        limits: Limits,
        where: str,
        note_progress: Callable[[], None],
    ) -> None:
        self._execution = execution
        self._checkpoints = checkpoints
        self._limits = limits
        self._where = where
        self._note_progress = note_progress
        self._began = self._written_at = clock.stopwatch()
        self._stored = self._encode(execution.cursor)
        self._unwritten = 0
        self._is_dirty = False
        self.cursor = execution.cursor
        self.total = execution.iterations_total
        self.iterations = execution.iterations
        self.done_here = 0

    def move(self, value: Any) -> None:
        """Set the cursor. Raises ``PayloadError`` when it cannot be stored."""
        # Encoded at once: it shall be refused where it is set, and be what it was then.
        self._stored = self._encode(value)
        self.cursor = value
        self._is_dirty = True

    def expect(self, total: int | None) -> None:
        """Set the total, to be written with the next checkpoint."""
        self._is_dirty = self._is_dirty or total != self.total
        self.total = total

    def finish_item(self, value: Any, *, is_last: bool) -> None:
        """Count an item as done and go on from `value`; end the execution if the loop has to stop here."""
        self.move(value)
        self.iterations += 1
        self.done_here += 1
        self._unwritten += 1
        # After the last item there is nothing to go on with: the step is done.
        reason = None if is_last else self._limits.reason_to_stop(self.done_here, self._began)
        if reason is not None or self._limits.is_due(self._unwritten, self._written_at):
            self.write(is_last=is_last)
        if reason is not None:
            raise flow.Suspend(reason=reason)

    def checkpoint(self) -> None:
        """Write now; end the execution if the loop has to stop here."""
        reason = self._limits.reason_to_stop(self.done_here, self._began)
        self.write()
        if reason is not None:
            raise flow.Suspend(reason=reason)

    def write(self, *, is_last: bool = False) -> None:
        """Write; end the execution if it was moved, or shall stop."""
        answer = self._record()
        self._unwritten = 0
        self._is_dirty = False
        self._written_at = clock.stopwatch()
        if answer is Answer.FENCED or (answer is Answer.STOP and not is_last):
            # Fenced: the end of the execution will find that out too, and write nothing.
            raise flow.Suspend(reason=answer.value)

    def close(self) -> None:
        """Write what is not written yet, when the body has ended in whatever way. Raises nothing."""
        if not (self._is_dirty or self._unwritten):
            return
        try:
            self._record()
        except Exception:
            # What was written before stands, and the end of the execution is recorded all the same.
            extra = about(execution=self._execution)
            logger.exception("%s: the last items could not be noted as done.", self._where, extra=extra)

    def _record(self) -> Answer:
        progressed = self.done_here > 0
        answer = self._checkpoints.write(self._stored, self.iterations, self.total, progressed=progressed)
        if progressed and answer is not Answer.FENCED:
            self._note_progress()
        return answer

    def _encode(self, value: Any) -> str | None:
        if value is None:
            return None
        return dumps(value, limit=settings.MAX_CURSOR_BYTES, what=f"{self._where}: cursor")
