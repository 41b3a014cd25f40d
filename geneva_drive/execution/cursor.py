"""The cursor of a loop: what a checkpoint writes, when it is written, and when the loop has to stop."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from django.db import InterfaceError, OperationalError, connections

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition import flow
from geneva_drive.definition.collection import StepDefinition
from geneva_drive.execution.runner import Runner
from geneva_drive.lifecycle.locking import alias_of, is_lost_connection
from geneva_drive.lifecycle.unit_of_work import in_transaction
from geneva_drive.logs import about
from geneva_drive.models import columns
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.serialization import dumps
from geneva_drive.states import ExecutionState

logger = logging.getLogger("geneva_drive.step")

_ON_HOLD = "a pause or cancel was requested"
_MOVED = "the execution was moved"


class Cursor:
    """The cursor of one execution of a resumable step, with its counts and limits.

    Parameters
    ----------
    token
        What makes the execution ours: without it nothing is written.
    where
        For messages: the workflow and its step.

    Attributes
    ----------
    value
        As it was set last; None at the beginning.
    total
        Items in all; None when nobody knows.
    iterations
        Items done, in this execution and in those that it continues.
    done_here
        Items done in this execution.
    has_progressed
        Whether a checkpoint has recorded an item of this execution.
    """

    def __init__(
        self, execution: StepExecution, token: UUID, definition: StepDefinition, runner: Runner, where: str
    ) -> None:
        self.where = where
        self.value = execution.cursor
        self.total = execution.iterations_total
        self.iterations = execution.iterations
        self.done_here = 0
        self.has_progressed = False
        self._execution = execution
        self._token = token
        self._should_stop = runner.should_stop
        own = definition.max_iterations if runner.honours_limits else None
        self._max_iterations = min(
            (each for each in (own, runner.most_iterations) if each is not None), default=None
        )
        self._max_runtime = definition.max_runtime if runner.honours_limits else None
        self._checkpoint_every = definition.checkpoint_every
        self._began = self._written_at = clock.stopwatch()
        self._text = self._encode(self.value)
        self._unwritten = 0
        self._is_changed = False
        self._using = alias_of(execution)
        self._sql, self._key = _statement(execution, token, self._using)

    def set(self, value: Any) -> None:
        """Set the cursor. Raises ``PayloadError`` when it cannot be stored."""
        # Encoded at once, so that it is refused where it is set, and is stored as it was then.
        self._text = self._encode(value)
        self.value = value
        self._is_changed = True

    def set_total(self, total: int | None) -> None:
        """Set the total, to be written with the next checkpoint."""
        self._is_changed = self._is_changed or total != self.total
        self.total = total

    def finish_item(self, value: Any, *, is_last: bool) -> None:
        """Count an item as done and continue from `value`; end the execution if the loop has to stop here."""
        self.set(value)
        self.iterations += 1
        self.done_here += 1
        self._unwritten += 1
        # After the last item there is nothing to stop: the step is done.
        reason = None if is_last else self._reason_to_stop()
        every = self._checkpoint_every
        if isinstance(every, int):
            is_due = self._unwritten >= every
        else:
            is_due = clock.stopwatch() - self._written_at >= every.total_seconds()
        if reason is not None or is_due:
            self.write(is_last=is_last)
        if reason is not None:
            raise flow.Suspend(reason=reason)

    def checkpoint(self) -> None:
        """Write now; end the execution if the loop has to stop here."""
        reason = self._reason_to_stop()
        self.write()
        if reason is not None:
            raise flow.Suspend(reason=reason)

    def _reason_to_stop(self) -> str | None:
        """Why this process has to stop here; nothing stops it before the first item."""
        if not self.done_here:
            return None
        if self._max_iterations is not None and self.done_here >= self._max_iterations:
            return "max_iterations"
        runtime = self._max_runtime
        if runtime is not None and clock.stopwatch() - self._began >= runtime.total_seconds():
            return "max_runtime"
        return "shutdown" if self._should_stop() else None

    def write(self, *, is_last: bool = False) -> None:
        """Write; end the execution if it was moved, or has to stop for a pause or cancel."""
        found = self._store()
        self._unwritten = 0
        self._is_changed = False
        self._written_at = clock.stopwatch()
        if found == _MOVED or (found == _ON_HOLD and not is_last):
            # When it was moved, its end will be fenced, too, and write nothing.
            raise flow.Suspend(reason=found)

    def close(self) -> None:
        """Write what is not written yet, however the body ended. Raises nothing."""
        if not (self._is_changed or self._unwritten):
            return
        try:
            self._store()
        except Exception:
            # What was written before stands, and the end of the execution is recorded all the same.
            extra = about(execution=self._execution)
            logger.exception(
                "%s: the progress of its last items could not be saved. Those items will run again.",
                self.where,
                extra=extra,
            )

    def _store(self) -> str | None:
        """Write, fenced by the token, and return why the loop has to stop if the statement finds out."""
        progressed = self.done_here > 0
        if progressed and self._execution.reattempts:
            self._forget_reattempts()
        parameters = [self._text, self.iterations, self.total, int(progressed), *self._key]
        found = None
        if not self._update(f"{self._sql} AND NOT on_hold", parameters):
            found = _ON_HOLD if self._update(self._sql, parameters) else _MOVED
        self.has_progressed = self.has_progressed or (progressed and found != _MOVED)
        return found

    def _forget_reattempts(self) -> None:
        """Reset the count of reattempts by policy, which is kept in JSON; once in an execution."""
        metadata = {**self._execution.metadata, "reattempts": 0}
        rows = StepExecution._base_manager.using(self._using).filter(
            pk=self._execution.pk, attempt_token=self._token, state=ExecutionState.IN_PROGRESS
        )
        if rows.update(metadata=metadata):
            self._execution.metadata = metadata

    def _update(self, sql: str, parameters: list[Any]) -> int:
        connection = connections[self._using]

        def execute() -> int:
            with connection.cursor() as cursor:
                cursor.execute(sql, parameters)
                return int(cursor.rowcount)

        try:
            return execute()
        except (OperationalError, InterfaceError) as error:
            if connection.in_atomic_block:
                raise
            if is_lost_connection(error, connection):
                connection.close()
        # Items that are done wait for a server that restarts: what is not written would be done again.
        return in_transaction(self._using, execute, patience=settings.LEASE)

    def _encode(self, value: Any) -> str | None:
        if value is None:
            return None
        return dumps(value, limit=settings.MAX_CURSOR_BYTES, what=f"{self.where}: cursor")


def _statement(execution: StepExecution, token: UUID, using: str) -> tuple[str, list[Any]]:
    """Return the statement that writes a checkpoint, and the parameters of its condition."""
    connection = connections[using]
    fields = StepExecution._meta
    quote, table = connection.ops.quote_name, fields.db_table
    # The column's real type: an older installation may have text.
    cast = (
        f"::{columns.json_storage(connection, table, 'cursor')}" if connection.vendor == "postgresql" else ""
    )
    # "cursor" is a keyword of MariaDB's: the quotes are needed. An item that is done ends a series of crashes.
    sql = (
        f"UPDATE {quote(table)} SET {quote('cursor')} = %s{cast}, "
        "iterations = %s, iterations_total = %s, crashes = CASE WHEN %s = 1 THEN 0 ELSE crashes END "
        "WHERE id = %s AND attempt_token = %s AND state = %s"
    )
    key = [
        fields.pk.get_db_prep_value(execution.pk, connection),
        fields.get_field("attempt_token").get_db_prep_value(token, connection),
        str(ExecutionState.IN_PROGRESS),
    ]
    return sql, key
