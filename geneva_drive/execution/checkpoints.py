"""Writing the cursor of a loop: one UPDATE of one row, by its key, without reading it.

The same statement learns whether the loop may go on. It hits no row when the execution was moved (another
token, another state), and none when a pause or cancel marked it as ``held``; a second statement, which runs
only then, tells the two apart.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import InterfaceError, OperationalError, connections

from geneva_drive.conf import settings
from geneva_drive.lifecycle.locking import alias_of, in_transaction, is_lost_connection
from geneva_drive.models import columns
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.states import ExecutionState

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["Answer", "Checkpoints"]


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
        self._go_on = _sql(connection, "AND NOT held")
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
