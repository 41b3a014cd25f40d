"""Locks, always in the same order: the workflow, then its execution.

On a database without row locks (SQLite) a lock is a write: a transaction that reads before it writes
fails at once when another one writes between, while one that begins with a write waits its turn.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import InterfaceError, OperationalError, connections, transaction
from django.db.models import F

from geneva_drive.models.records import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet


_T = TypeVar("_T")

_ATTEMPTS = 12

# PostgreSQL: serialization failure, deadlock, lock not available.
_CONFLICT_STATES = frozenset({"40001", "40P01", "55P03"})
# MySQL and MariaDB: lock wait timeout, deadlock, row changed since the snapshot.
_CONFLICT_CODES = frozenset({1205, 1213, 1020})
# MySQL and MariaDB: gone away, lost, killed for idleness, killed, shutting down; nobody listens (socket,
# port), lost while connecting, too many connections.
_LOST_CODES = frozenset({2006, 2013, 4031, 1927, 1053, 2002, 2003, 2055, 1040})


# PostgreSQL: insufficient resources, and an operator's or a timeout's intervention.
_PASSING_STATES = ("53", "57")
# MySQL and MariaDB: interrupted, timeouts, table and disk full, read-only.
_PASSING_CODES = frozenset({1317, 3024, 1969, 1114, 1021, 1290, 1836})
# SQLite has no codes that Django would hand on.
_PASSING_TEXTS = ("disk is full", "disk I/O error", "readonly database", "unable to open database")


def alias_of(row: Any) -> str:
    """Return the alias of the database that holds a row."""
    alias: str | None = row._state.db
    assert alias is not None, "the row has not been saved"
    return alias


def lock_workflow(model: type[Workflow], pk: Any, using: str) -> Workflow | None:
    """Lock one workflow and return it as it is now, or None when it is gone."""
    rows = model._base_manager.using(using).defer("ongoing_key")
    if not connections[using].features.has_select_for_update:
        write_first(model, pk, using)
        return rows.filter(pk=pk).first()
    return rows.select_for_update().filter(pk=pk).first()


def write_first(model: type[Workflow], pk: Any, using: str) -> None:
    """Take the write lock of a database that has no other, by a write that changes nothing."""
    if not connections[using].features.has_select_for_update:
        model._base_manager.using(using).filter(pk=pk).update(updated_at=F("updated_at"))


def lock_execution(workflow: Workflow, pk: Any) -> StepExecution | None:
    """Lock one execution of a locked workflow and return it as it is now."""
    execution: StepExecution | None = _locked(workflow).filter(pk=pk).first()
    return execution


def lock_active_execution(workflow: Workflow) -> StepExecution | None:
    """Lock the one active execution of a locked workflow."""
    execution: StepExecution | None = _locked(workflow).filter(active_workflow=workflow.pk).first()
    return execution


def lock_latest_execution(workflow: Workflow) -> StepExecution | None:
    """Lock the last execution of a locked workflow, whatever its state."""
    execution: StepExecution | None = _locked(workflow).latest_first().first()
    return execution


def lock_attempts_with_signal(workflow: Workflow, names: list[str]) -> list[Any]:
    """Return the keys of the signals that executions of these steps of a locked workflow were given."""
    rows = _locked(workflow).filter(step_name__in=names, signal_id__isnull=False)
    return list(rows.values_list("signal_id", flat=True))


def lock_signals(workflow: Workflow) -> QuerySet[Signal]:
    """Return the signals of a locked workflow, oldest first, as a locking read sees them."""
    using = alias_of(workflow)
    rows: QuerySet[Signal] = workflow.signals.db_manager(using).order_by("created_at", "pk")
    if connections[using].features.has_select_for_update:
        # Nobody else has them, but a plain read under repeatable read could miss the newest.
        rows = rows.select_for_update()
    return rows


def _locked(workflow: Workflow) -> Any:
    using = alias_of(workflow)
    # Errors can be long and are never decided upon. The cursor is read along, under the lock: the next
    # execution of a resumable step gets it.
    rows = workflow.executions.db_manager(using).defer("active_workflow", "error_message", "error_traceback")
    if connections[using].features.has_select_for_update:
        # A locking read: under repeatable read a plain one would still see the state before the lock.
        rows = rows.select_for_update()
    return rows


def is_conflict(error: BaseException) -> bool:
    """Whether the database gave up one of two transactions that were in each other's way."""
    cause = error.__cause__ or error
    if getattr(cause, "sqlstate", None) in _CONFLICT_STATES:
        return True
    if cause.args and cause.args[0] in _CONFLICT_CODES:
        return True
    return "database is locked" in str(cause) or "database table is locked" in str(cause)


def is_lost_connection(error: BaseException, connection: BaseDatabaseWrapper) -> bool:
    """Whether the statement failed since the connection to the server is gone."""
    cause = error.__cause__ or error
    if cause.args and cause.args[0] in _LOST_CODES:
        return True
    state = getattr(cause, "sqlstate", None)
    if state is not None and (state.startswith(("08", "57P"))):
        return True
    if connection.vendor == "postgresql":
        raw = connection.connection
        return raw is None or bool(raw.closed)
    return isinstance(error, InterfaceError)


def is_missing_table(error: BaseException) -> bool:
    """Whether a table or column is not there: migrate was not run."""
    cause = error.__cause__ or error
    if getattr(cause, "sqlstate", None) in ("42P01", "42703"):
        return True
    if cause.args and cause.args[0] in (1146, 1054):
        return True
    return "no such table" in str(cause) or "no such column" in str(cause)


def may_pass(error: BaseException, using: str) -> bool:
    """Whether an error is the server's and not the row's, so that the same may work later.

    An ``OperationalError`` by itself does not say so: on MySQL and MariaDB a text that a column cannot hold
    and a trigger that refuses are of that class too.
    """
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    if is_conflict(error) or is_lost_connection(error, connections[using]):
        return True
    cause = error.__cause__ or error
    state = getattr(cause, "sqlstate", None)
    if state is not None:
        return bool(state.startswith(_PASSING_STATES))
    code = cause.args[0] if cause.args else None
    return code in _PASSING_CODES or any(text in str(cause) for text in _PASSING_TEXTS)


def in_transaction(
    using: str, work: Callable[[], _T], *, repeatable: bool = True, patience: timedelta = timedelta(0)
) -> _T:
    """Run ``work()`` in a transaction; once more when the database gave up on it.

    Inside a caller's transaction nothing is tried again, since that transaction is the caller's.

    Parameters
    ----------
    repeatable
        Whether ``work`` may be run again after a connection that was lost while committing, when nobody
        knows whether the commit was done. True for what is fenced, False for what creates.
    patience
        For how long a server that is out of reach is tried again, beyond the few tries that all get.
    """
    connection = connections[using]
    if connection.in_atomic_block:
        with transaction.atomic(using=using):
            return work()
    attempt = 0
    until = time.monotonic() + patience.total_seconds()
    while True:
        try:
            with transaction.atomic(using=using):
                return work()
        except (OperationalError, InterfaceError) as error:
            attempt += 1
            lost = is_lost_connection(error, connection)
            if not (is_conflict(error) or (lost and repeatable)):
                raise
            if attempt >= _ATTEMPTS and not (lost and time.monotonic() < until):
                raise
            if lost:
                connection.close()
            # Full jitter: those that collided once must not meet again.
            time.sleep(random.uniform(0, min(0.5, 0.005 * 2**attempt)))
