"""When a loop has to stop, and when it writes where it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import InterfaceError, OperationalError, connections

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition import flow
from geneva_drive.definition.collection import StepDefinition
from geneva_drive.execution.runner import Runner
from geneva_drive.lifecycle.locking import alias_of, in_transaction, is_lost_connection
from geneva_drive.logs import about
from geneva_drive.models import columns
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.serialization import dumps
from geneva_drive.states import ExecutionState

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


@dataclass(frozen=True, slots=True)
class Limits:
    """When one execution of a loop has to give way, and how often it writes its cursor.

    ``checkpoint_every`` is a number of items or a duration. ``max_runtime`` counts from when the body began.
    """

    should_stop: Callable[[], bool]
    max_iterations: int | None = None
    max_runtime: timedelta | None = None
    checkpoint_every: int | timedelta = 1

    @classmethod
    def of(cls, definition: StepDefinition, runner: Runner) -> Limits:
        """Return the limits of a step and of who runs it; the smaller number of items counts."""
        own = definition.max_iterations if runner.honours_limits else None
        most = min((each for each in (own, runner.most_iterations) if each is not None), default=None)
        runtime = definition.max_runtime if runner.honours_limits else None
        return cls(runner.should_stop, most, runtime, definition.checkpoint_every)

    def is_due(self, unwritten: int, written_at: float) -> bool:
        """Whether to write the cursor, so many items and at that time (of the stopwatch) after the last one."""
        if isinstance(self.checkpoint_every, int):
            return unwritten >= self.checkpoint_every
        return clock.stopwatch() - written_at >= self.checkpoint_every.total_seconds()

    def reason_to_stop(self, done: int, began: float) -> str | None:
        """Why this process has to stop after so many items; never before there is one."""
        if not done:
            return None
        if self.max_iterations is not None and done >= self.max_iterations:
            return "max_iterations"
        if self.max_runtime is not None and clock.stopwatch() - began >= self.max_runtime.total_seconds():
            return "max_runtime"
        return "shutdown" if self.should_stop() else None


class Answer(Enum):
    """What a checkpoint learned while it wrote."""

    GO_ON = "go on"
    STOP = "a pause or cancel was asked for"  # written all the same
    FENCED = "the execution was moved"  # nothing was written


class Checkpoints:
    """The checkpoints of one execution in progress.

    Parameters
    ----------
    token
        What makes the execution ours: without it nothing is written.
    """

    def __init__(self, execution: StepExecution, token: UUID) -> None:
        self._using = alias_of(execution)
        self._execution = execution
        self._token = token
        connection = connections[self._using]
        fields = StepExecution._meta
        self._key = [
            fields.pk.get_db_prep_value(execution.pk, connection),
            fields.get_field("attempt_token").get_db_prep_value(token, connection),
            str(ExecutionState.IN_PROGRESS),
        ]
        self._go_on = _sql(connection, "AND NOT on_hold")
        self._whatever_was_asked = _sql(connection, "")

    def write(self, cursor: str | None, iterations: int, total: int | None, *, progressed: bool) -> Answer:
        """Write, fenced by the token.

        Parameters
        ----------
        cursor
            JSON text; None for a loop that has not begun.
        progressed
            Whether an item was done in this execution. Then earlier crashes of the step, and reattempts by
            policy, do not count any more.
        """
        parameters = [cursor, iterations, total, int(progressed), *self._key]
        if progressed and self._execution.reattempts:
            self._forget_reattempts()
        if self._update(self._go_on, parameters):
            return Answer.GO_ON
        return Answer.STOP if self._update(self._whatever_was_asked, parameters) else Answer.FENCED

    def _forget_reattempts(self) -> None:
        """Once in an execution that a policy has led to: their number is kept in JSON."""
        metadata = {**self._execution.metadata, "reattempts": 0}
        rows = StepExecution._base_manager.using(self._using).filter(
            pk=self._execution.pk, attempt_token=self._token, state=ExecutionState.IN_PROGRESS
        )
        if rows.update(metadata=metadata):
            self._execution.metadata = metadata

    def _update(self, sql: str, parameters: list[Any]) -> int:
        connection = connections[self._using]
        try:
            return _execute(connection, sql, parameters)
        except (OperationalError, InterfaceError) as error:
            if connection.in_atomic_block:
                raise
            if is_lost_connection(error, connection):
                connection.close()
        # Items that are done wait for a server that restarts: what is not written would be done again.
        return in_transaction(
            self._using, lambda: _execute(connection, sql, parameters), patience=settings.LEASE
        )


def _execute(connection: BaseDatabaseWrapper, sql: str, parameters: list[Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return int(cursor.rowcount)


def _sql(connection: BaseDatabaseWrapper, condition: str) -> str:
    quote = connection.ops.quote_name
    table = StepExecution._meta.db_table
    placeholder = "%s"
    if connection.vendor == "postgresql":
        # The column that is really there: an older installation may have text.
        placeholder = f"%s::{columns.json_storage(connection, table, 'cursor')}"
    # A word of MariaDB's: the quotes are needed.
    return (
        f"UPDATE {quote(table)} SET {quote('cursor')} = {placeholder}, "
        f"iterations = %s, iterations_total = %s, crashes = CASE WHEN %s = 1 THEN 0 ELSE crashes END "
        f"WHERE id = %s AND attempt_token = %s AND state = %s {condition}"
    )


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
