"""Ending one step and beginning the next in one commit; on PostgreSQL in one statement.

The portable way is ``executor``'s: lock, fence, end, look at the preconditions, insert the next row
already claimed. This module has PostgreSQL's way of writing the same rows: one round trip. It is taken
only when nothing has to be decided under the lock, and gives up (an empty result) whenever the rows are
not as expected, so that the portable way locks, looks and decides.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django.db import connections

from geneva_drive import clock
from geneva_drive.events import execution_finalized, precondition_checked, workflow_transitioned
from geneva_drive.execution.performing import Performance
from geneva_drive.lifecycle import scheduling
from geneva_drive.lifecycle.locking import alias_of
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState, Outcome, WorkflowState

if TYPE_CHECKING:
    from datetime import datetime

    from geneva_drive.definition.steps import StepDefinition
    from geneva_drive.execution.runner import Runner

__all__ = ["at_once"]

# Columns that the next row gets; every other column is nullable or has a database default.
_COLUMNS = (
    "step_name",
    "state",
    "queue",
    "priority",
    "scheduled_for",
    "started_at",
    "process_id",
    "attempt_token",
    "handed_over",
    "held",
    "iterations",
    "crashes",
    "created_at",
)


def at_once(performance: Performance, runner: Runner) -> Performance | None:
    """Hand over in one statement, or return None, in which case nothing was written."""
    using = alias_of(performance.execution)
    connection = connections[using]
    if connection.vendor != "postgresql":
        return None
    following = _plain_successor(performance)
    if following is None:
        return None
    now = clock.now(using)
    workflow, execution = performance.workflow, performance.execution
    built = scheduling.build(workflow, following, now=now)
    if clock.utc(built.scheduled_for) > now or not runner.may_go_on(built, execution.queue):
        return None
    hero = _present_hero(workflow)
    if hero is None:
        return None

    token = uuid4()
    moment = clock.local(now)
    built.state = ExecutionState.IN_PROGRESS
    built.started_at = built.scheduled_for = moment
    built.process_id = runner.process_id
    built.attempt_token = token
    built.handed_over = True
    row = _write(using, performance, built, now)
    if row is None:
        return None
    built.pk, metadata, job_options = row
    built._state.adding = False
    execution.state, execution.outcome, execution.finished_at = (
        ExecutionState.COMPLETED,
        Outcome.SUCCESS,
        moment,
    )
    if execution_finalized.receivers:
        execution_finalized.send_robust(type(workflow), workflow=workflow, execution=execution, fenced=False)
    fresh = _successor_instance(workflow, built, moment, metadata, job_options, hero)
    if precondition_checked.receivers:
        precondition_checked.send_robust(type(fresh), workflow=fresh, execution=built, verdict="proceed")
    return Performance(fresh, built, following, token)


def _plain_successor(performance: Performance) -> StepDefinition | None:
    """Return the next step if nothing about it has to be decided under the lock."""
    cls = type(performance.workflow)
    if cls._geneva.cancel_conditions or workflow_transitioned.receivers:
        return None
    following = cls.steps.next_after(performance.execution.step_name)
    if following is None or following.conditional:
        return None
    return following


class _NoHeroNeeded:
    """Stands for "there is nothing to look up"."""


def _present_hero(workflow: Workflow) -> Any:
    """Return the next body's hero, read anew; None sends the case to the portable way.

    Read just before the statement rather than under the lock: a hero deleted in between is as gone as
    one deleted just after the commit.
    """
    if workflow._geneva.may_proceed_without_hero:
        return _NoHeroNeeded
    if workflow.hero_type_id is None:
        return None
    try:
        probe = Workflow(hero_type_id=workflow.hero_type_id, hero_id=workflow.hero_id)
        probe._state.db = alias_of(workflow)
        return probe.hero
    except Exception:  # noqa: BLE001 - looked up again under the lock, where it is handled
        return None


@cache
def _sql(using: str) -> str:
    quote = connections[using].ops.quote_name
    workflow, execution = quote(Workflow._meta.db_table), quote(StepExecution._meta.db_table)
    given_key = "id, " if not _key_is_generated() else ""
    key_value = "%(id)s, " if given_key else ""
    columns = ", ".join(quote(name) for name in _COLUMNS)
    values = ", ".join(f"%({name})s" for name in _COLUMNS)
    # The lock and the fence come first and everything hangs on them: an update of the workflow that does
    # not come from the fenced row would let a late finisher move it.
    return f"""
WITH w AS (
    SELECT id, metadata, job_options FROM {workflow}
    WHERE id = %(workflow)s AND state = %(performing)s AND pause_requested_at IS NULL FOR UPDATE
), d AS (
    UPDATE {execution} AS e SET state = %(completed)s, outcome = %(success)s, finished_at = %(now)s
    FROM w WHERE e.id = %(execution)s AND e.workflow_id = w.id AND e.state = %(in_progress)s
        AND e.attempt_token = %(token)s
    RETURNING e.workflow_id
), u AS (
    UPDATE {workflow} AS v SET current_step_name = %(step_name)s, next_step_name = %(step_name)s, updated_at = %(now)s
    FROM d WHERE v.id = d.workflow_id
    RETURNING v.id
), i AS (
    INSERT INTO {execution} ({given_key}workflow_id, {columns})
    SELECT {key_value}u.id, {values} FROM u
    RETURNING id
)
SELECT i.id, w.metadata, w.job_options FROM i, w
"""


def _key_is_generated() -> bool:
    return bool(StepExecution._meta.pk.get_internal_type() != "UUIDField")


def _write(using: str, performance: Performance, built: StepExecution, now: datetime) -> Any:
    parameters: dict[str, Any] = {name: getattr(built, name) for name in _COLUMNS}
    for name in ("scheduled_for", "started_at", "created_at"):
        parameters[name] = now
    parameters["state"] = str(built.state)
    parameters |= {
        "id": built.pk,
        "workflow": performance.workflow.pk,
        "execution": performance.execution.pk,
        "token": performance.token,
        "now": now,
        "performing": str(WorkflowState.PERFORMING),
        "in_progress": str(ExecutionState.IN_PROGRESS),
        "completed": str(ExecutionState.COMPLETED),
        "success": str(Outcome.SUCCESS),
    }
    with connections[using].cursor() as cursor:
        cursor.execute(_sql(using), parameters)
        return cursor.fetchone()


def _successor_instance(
    workflow: Workflow, built: StepExecution, moment: datetime, metadata: Any, job_options: Any, hero: Any
) -> Workflow:
    """Return the instance for the next body: the row as it is now, nothing of what was set on the old."""
    values = {
        field.attname: workflow.__dict__[field.attname]
        for field in workflow._meta.concrete_fields
        if field.attname in workflow.__dict__
    }
    connection = connections[alias_of(workflow)]
    for name, raw in (("metadata", metadata), ("job_options", job_options)):
        field: Any = workflow._meta.get_field(name)
        values[name] = field.from_db_value(raw, None, connection)
    values |= {
        "current_step_name": built.step_name,
        "next_step_name": built.step_name,
        "updated_at": moment,
        "state": WorkflowState.PERFORMING,
    }
    fresh = type(workflow).from_db(alias_of(workflow), list(values), list(values.values()))
    if hero is not _NoHeroNeeded:
        fresh._state.fields_cache["hero"] = hero
    return fresh
