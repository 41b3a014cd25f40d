"""The fast path's statements, for PostgreSQL: what ``prepare`` and ``finalize`` write, in one round trip and commit.

Each of the three locks and checks first, and everything else depends on what that finds, so that an empty
result means that nothing was written: then the portable path locks, checks and decides. An update of the
workflow that did not depend on the fenced execution would let a late finisher move it.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import Error, connections, transaction

from geneva_drive import clock
from geneva_drive.lifecycle.locking import is_lost_connection
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState, Outcome, WorkflowState

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from django.db import models

    _Row = TypeVar("_Row", bound=models.Model)
else:
    _Row = TypeVar("_Row")


logger = logging.getLogger("geneva_drive.executor")

# Columns that the next row gets; every other column is nullable or has a database default.
_SCHEDULED = (
    "step_name",
    "state",
    "queue",
    "priority",
    "scheduled_for",
    "handed_off",
    "on_hold",
    "iterations",
    "crashes",
    "created_at",
)
_CLAIMED = (*_SCHEDULED, "started_at", "process_id", "attempt_token")

_STATES = {
    "ready": str(WorkflowState.READY),
    "performing": str(WorkflowState.PERFORMING),
    "finished": str(WorkflowState.FINISHED),
    "scheduled": str(ExecutionState.SCHEDULED),
    "in_progress": str(ExecutionState.IN_PROGRESS),
    "completed": str(ExecutionState.COMPLETED),
    "success": str(Outcome.SUCCESS),
}


def can_run(using: str) -> bool:
    """Whether the database behind ``using`` can write and return rows in one statement."""
    return connections[using].vendor == "postgresql"


def begin(
    using: str,
    execution_id: Any,
    workflow_id: Any,
    *,
    now: datetime,
    process: UUID | None,
    token: UUID,
    skip_locked: bool,
) -> tuple[Workflow, StepExecution] | None:
    """Mark a scheduled, due execution of a ready workflow as in progress; return both rows."""
    row = _run(
        using,
        _begin_sql(using, skip_locked),
        {"workflow": workflow_id, "execution": execution_id, "now": now, "process": process, "token": token},
    )
    if row is None:
        return None
    split = len(_loaded(Workflow))
    return load(Workflow, using, row[:split]), load(StepExecution, using, row[split:])


def hand_off(
    using: str,
    workflow_id: Any,
    execution_id: Any,
    token: UUID,
    following: StepExecution,
    now: datetime,
    *,
    built_with: Any,
) -> tuple[Any, Any] | None:
    """End an execution and insert the next; return its key, and the workflow's metadata.

    Parameters
    ----------
    following
        In progress, if this process runs it; otherwise scheduled.
    built_with
        The job options that ``following`` was built with. Nothing is written if the row has others by now.
    """
    inline = following.state == ExecutionState.IN_PROGRESS
    columns = _CLAIMED if inline else _SCHEDULED
    parameters: dict[str, Any] = {name: getattr(following, name) for name in columns}
    parameters |= {"created_at": now, "state": str(following.state)}
    # As they are in the database, whatever USE_TZ says.
    parameters["scheduled_for"] = clock.utc(following.scheduled_for)
    if inline:
        parameters["started_at"] = now
    parameters |= {
        "id": following.pk,
        "workflow": workflow_id,
        "execution": execution_id,
        "token": token,
        "now": now,
        "job_options": _prepared(Workflow, "job_options", using, built_with),
    }
    if following.metadata is not None:
        # A parameter that is NULL has no type of its own, so this is named only when there is some.
        parameters["metadata"] = _prepared(StepExecution, "metadata", using, following.metadata)
        columns = (*columns, "metadata")
    row = _run(using, _hand_off_sql(using, columns, inline), parameters)
    if row is None:
        return None
    field: Any = Workflow._meta.get_field("metadata")
    return row[0], field.from_db_value(row[1], None, connections[using])


def finish(using: str, workflow_id: Any, execution_id: Any, token: UUID, now: datetime) -> bool:
    """End the last execution and finish its workflow."""
    parameters = {"workflow": workflow_id, "execution": execution_id, "token": token, "now": now}
    return _run(using, _finish_sql(using), parameters) is not None


def load(model: type[_Row], using: str, values: Any) -> _Row:
    """Make an instance of a row that a statement returned, as a query would."""
    connection = connections[using]
    fields = _loaded(model)
    converted = [
        field.from_db_value(value, None, connection) if hasattr(field, "from_db_value") else value
        for field, value in zip(fields, values, strict=True)
    ]
    return model.from_db(using, [field.attname for field in fields], converted)


def _prepared(model: type[models.Model], name: str, using: str, value: Any) -> Any:
    field: Any = model._meta.get_field(name)
    return None if value is None else field.get_db_prep_value(value, connections[using])


_NEVER_LOADED = {"ongoing_key", "active_workflow", "error_message", "error_traceback", "cursor"}


@cache
def _loaded(model: type[models.Model]) -> tuple[Any, ...]:
    # Generated columns stay deferred, and what can be long and decides nothing.
    return tuple(field for field in model._meta.concrete_fields if field.name not in _NEVER_LOADED)


def _run(using: str, sql: str, parameters: dict[str, Any]) -> Any:
    connection = connections[using]
    inside = connection.in_atomic_block
    try:
        # A statement that fails must not break a caller's transaction.
        with transaction.atomic(using=using) if inside else nullcontext(), connection.cursor() as cursor:
            cursor.execute(sql, {**_STATES, **parameters})
            return cursor.fetchone()
    except Error as error:
        # The portable path gets the same error, and handles it. If the statement did commit and only its
        # answer was lost, that path is fenced, and no thread holds what was begun: its process recovers it.
        logger.info(
            "A statement of the fast path failed (%s). The portable path does the same "
            "work; no action is needed.",
            error,
        )
        if not inside and is_lost_connection(error, connection):
            connection.close()
        return None


def _tables(using: str) -> tuple[str, str]:
    quote = connections[using].ops.quote_name
    return quote(Workflow._meta.db_table), quote(StepExecution._meta.db_table)


def _listed(model: type[models.Model], alias: str) -> str:
    return ", ".join(f"{alias}.{field.column}" for field in _loaded(model))


@cache
def _begin_sql(using: str, skip_locked: bool) -> str:
    workflow, execution = _tables(using)
    return f"""
WITH w AS (
    SELECT id FROM {workflow}
    WHERE id = %(workflow)s AND state = %(ready)s FOR UPDATE {"SKIP LOCKED" if skip_locked else ""}
), e AS (
    UPDATE {execution} AS x
    SET state = %(in_progress)s, started_at = %(now)s, process_id = %(process)s, attempt_token = %(token)s,
        handed_off = false
    FROM w WHERE x.id = %(execution)s AND x.workflow_id = w.id AND x.state = %(scheduled)s
        AND x.scheduled_for <= %(now)s AND x.deferred_since IS NULL
    RETURNING {_listed(StepExecution, "x")}
), u AS (
    UPDATE {workflow} AS v
    SET state = %(performing)s, current_step_name = e.step_name, next_step_name = e.step_name,
        started_at = coalesce(v.started_at, %(now)s), updated_at = %(now)s
    FROM e WHERE v.id = e.workflow_id
    RETURNING {_listed(Workflow, "v")}
)
SELECT {_listed(Workflow, "u")}, {_listed(StepExecution, "e")} FROM u, e
"""


_END = """
WITH w AS (
    SELECT id, metadata FROM {workflow}
    WHERE id = %(workflow)s AND state = %(performing)s {unless} FOR UPDATE
), d AS (
    UPDATE {execution} AS e
    SET state = %(completed)s, outcome = %(success)s, finished_at = %(now)s, on_hold = false
    FROM w WHERE e.id = %(execution)s AND e.workflow_id = w.id AND e.state = %(in_progress)s
        AND e.attempt_token = %(token)s
    RETURNING e.workflow_id
)"""


@cache
def _hand_off_sql(using: str, names: tuple[str, ...], inline: bool) -> str:
    workflow, execution = _tables(using)
    quote = connections[using].ops.quote_name
    given_key = StepExecution._meta.pk.get_internal_type() == "UUIDField"
    key, key_value = ("id, ", "%(id)s, ") if given_key else ("", "")
    columns = ", ".join(quote(name) for name in names)
    values = ", ".join(f"%({name})s" for name in names)
    unless = "AND pause_requested_at IS NULL AND job_options::text IS NOT DISTINCT FROM %(job_options)s::text"
    end = _END.format(workflow=workflow, execution=execution, unless=unless)
    moved = "current_step_name = %(step_name)s" if inline else "state = %(ready)s, current_step_name = NULL"
    return f"""{end}, u AS (
    UPDATE {workflow} AS v
    SET {moved}, next_step_name = %(step_name)s, updated_at = %(now)s
    FROM d WHERE v.id = d.workflow_id
    RETURNING v.id
), i AS (
    INSERT INTO {execution} ({key}workflow_id, {columns})
    SELECT {key_value}u.id, {values} FROM u
    RETURNING id
)
SELECT i.id, w.metadata FROM i, w
"""


@cache
def _finish_sql(using: str) -> str:
    workflow, execution = _tables(using)
    # Also while a pause is requested: there is nothing left to pause.
    end = _END.format(workflow=workflow, execution=execution, unless="")
    return f"""{end}
UPDATE {workflow} AS v
SET state = %(finished)s, current_step_name = NULL, next_step_name = NULL, pause_requested_at = NULL,
    transitioned_at = %(now)s, updated_at = %(now)s
FROM d WHERE v.id = d.workflow_id
RETURNING v.id
"""
