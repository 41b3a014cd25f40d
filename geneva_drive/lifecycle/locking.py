"""Locks on rows, always in the same order, and what the database's errors mean.

The workflow is locked first, then its execution. On a database without row locks (SQLite) a lock is a write: a
transaction that reads before it writes fails at once when another one writes in between, while one that begins
with a write waits its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import InterfaceError, OperationalError, connections
from django.db.models import F

from geneva_drive.models.querysets import StepExecutionQuerySet
from geneva_drive.models.records import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet

# PostgreSQL: serialization failure, deadlock, lock not available.
_CONFLICT_STATES = frozenset({"40001", "40P01", "55P03"})
# MySQL and MariaDB: lock wait timeout, deadlock, row changed since the snapshot.
_CONFLICT_CODES = frozenset({1205, 1213, 1020})
# MySQL and MariaDB: gone away, lost, killed for idleness, killed, shutting down; nobody listens (socket,
# port), lost while connecting, too many connections.
_LOST_CODES = frozenset({2006, 2013, 4031, 1927, 1053, 2002, 2003, 2055, 1040})
# PostgreSQL: insufficient resources; stopped by an operator or a timeout.
_PASSING_STATES = ("53", "57")
# MySQL and MariaDB: interrupted, timeouts, table and disk full, read-only.
_PASSING_CODES = frozenset({1317, 3024, 1969, 1114, 1021, 1290, 1836})
# SQLite has no codes that Django passes on.
_PASSING_TEXTS = ("disk is full", "disk I/O error", "readonly database", "unable to open database")


def alias_of(row: Any) -> str:
    """Return the alias of the database that holds a row."""
    alias: str | None = row._state.db
    assert alias is not None, "the row has not been saved"
    return alias


def lock_workflow(pk: Any, using: str, *, skip_locked: bool = False) -> Workflow | None:
    """Lock one workflow and return it as it is now, or None when it is gone.

    With ``skip_locked`` also when somebody else has locked it, where the database can skip locked rows.
    """
    rows = Workflow._base_manager.using(using).filter(pk=pk)
    features = connections[using].features
    if not features.has_select_for_update:
        rows.update(updated_at=F("updated_at"))
        return rows.defer("ongoing_key").first()
    rows = rows.defer("ongoing_key")
    return rows.select_for_update(
        skip_locked=skip_locked and features.has_select_for_update_skip_locked
    ).first()


def write_first(pk: Any, using: str) -> None:
    """Take the write lock of a database without row locks, by a write that changes nothing."""
    if not connections[using].features.has_select_for_update:
        Workflow._base_manager.using(using).filter(pk=pk).update(updated_at=F("updated_at"))


def lock_execution(workflow: Workflow, pk: Any) -> StepExecution | None:
    """Lock one execution of a locked workflow and return it as it is now."""
    return _locked(workflow).filter(pk=pk).first()


def lock_active_execution(workflow: Workflow) -> StepExecution | None:
    """Lock the one active execution of a locked workflow."""
    return _locked(workflow).filter(active_workflow=workflow.pk).first()


def lock_latest_execution(workflow: Workflow) -> StepExecution | None:
    """Lock the last execution of a locked workflow, whatever its state."""
    return _locked(workflow).latest_first().first()


def lock_attempts_with_signal(workflow: Workflow, names: list[str]) -> list[Any]:
    """Return the keys of the signals that executions of these steps of a locked workflow got."""
    rows = _locked(workflow).filter(step_name__in=names, signal_id__isnull=False)
    return list(rows.values_list("signal_id", flat=True))


def lock_signals(workflow: Workflow) -> QuerySet[Signal]:
    """Return the signals of a locked workflow, oldest first, as a locking read sees them."""
    rows: QuerySet[Signal] = workflow.signals.db_manager(workflow._state.db).order_by("created_at", "pk")
    # Nobody else holds them, but a plain read under repeatable read could miss the newest.
    return rows.select_for_update() if connections[rows.db].features.has_select_for_update else rows


def _locked(workflow: Workflow) -> StepExecutionQuerySet[StepExecution]:
    # Errors can be long and nothing is decided by them. The cursor is read with the row, under the lock: the
    # next execution of a resumable step gets it.
    rows: StepExecutionQuerySet[StepExecution] = workflow.executions.db_manager(workflow._state.db).defer(
        "active_workflow", "error_message", "error_traceback"
    )
    # A locking read: under repeatable read a plain one would still see the state before the lock.
    return rows.select_for_update() if connections[rows.db].features.has_select_for_update else rows


def is_conflict(error: BaseException) -> bool:
    """Whether the database gave up one of two transactions that conflicted."""
    cause = error.__cause__ or error
    if getattr(cause, "sqlstate", None) in _CONFLICT_STATES:
        return True
    if cause.args and cause.args[0] in _CONFLICT_CODES:
        return True
    return "database is locked" in str(cause) or "database table is locked" in str(cause)


def is_lost_connection(error: BaseException, connection: BaseDatabaseWrapper) -> bool:
    """Whether the statement failed because the connection to the server is gone."""
    cause = error.__cause__ or error
    if cause.args and cause.args[0] in _LOST_CODES:
        return True
    state = getattr(cause, "sqlstate", None)
    if state is not None and state.startswith(("08", "57P")):
        return True
    if connection.vendor == "postgresql":
        raw = connection.connection
        return raw is None or bool(raw.closed)
    return isinstance(error, InterfaceError)


def is_missing_table(error: BaseException) -> bool:
    """Whether a table or column is missing: migrate was not run."""
    cause = error.__cause__ or error
    if getattr(cause, "sqlstate", None) in ("42P01", "42703"):
        return True
    if cause.args and cause.args[0] in (1146, 1054):
        return True
    return "no such table" in str(cause) or "no such column" in str(cause)


def may_pass(error: BaseException, using: str) -> bool:
    """Whether an error comes from the server and not from the row, so that the same may work later.

    An ``OperationalError`` alone does not say so: on MySQL and MariaDB a text that a column cannot hold
    and a trigger that refuses raise one too.
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
