"""The fast path: begin a plain step, or end one and begin the next, in one statement.

The portable path is that of ``prepare`` and ``finalize``: lock, fence, end, check the preconditions, insert the
next row already claimed. Where the database can write and return in one statement, the fast path begins a step or
continues with one that is plain, and ends one before any other that is left scheduled. A step is plain when its
class has no ``cancel_if``, it has no condition, signal or cursor, and its hero is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from geneva_drive import clock
from geneva_drive.definition.collection import StepDefinition
from geneva_drive.definition.registry import registry
from geneva_drive.events import execution_finalized, precondition_checked, workflow_transitioned
from geneva_drive.execution import fast_path_sql
from geneva_drive.execution.perform import ClaimedExecution, row_of
from geneva_drive.execution.runner import Runner
from geneva_drive.lifecycle import dispatch, scheduling
from geneva_drive.lifecycle.locking import alias_of
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState, Outcome, WorkflowState


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is known about a scheduled execution without a lock, and never changes."""

    execution_id: Any
    workflow_id: Any
    type: str
    step_name: str
    hero_type_id: Any
    hero_id: Any

    #: For ``StepExecution.values_list``, in the order of the attributes.
    COLUMNS = (
        "pk",
        "workflow_id",
        "workflow__type",
        "step_name",
        "workflow__hero_type_id",
        "workflow__hero_id",
    )


@dataclass(frozen=True, slots=True)
class HandOff:
    """A step that was ended, and the execution that was claimed with it for this process, if there is one."""

    following: ClaimedExecution | None


def begin(
    candidate: Candidate, runner: Runner, using: str, *, skip_locked: bool = False
) -> ClaimedExecution | None:
    """Prepare a plain step in one statement, or return None, in which case nothing was written."""
    # Receivers of state changes need the portable path, which sends them.
    if not fast_path_sql.can_run(using) or workflow_transitioned.receivers:
        return None
    cls = registry.get(candidate.type)
    if cls is None:
        return None
    definition = cls.steps.resolve(candidate.step_name)
    if definition is None or definition.removed or not _is_plain(cls, definition):
        return None
    hero = _look_up_hero(cls, candidate.hero_type_id, candidate.hero_id, using)
    if hero is None:
        return None
    token = uuid4()
    rows = fast_path_sql.begin(
        using,
        candidate.execution_id,
        candidate.workflow_id,
        now=clock.now(using),
        process=runner.process_id,
        token=token,
        skip_locked=skip_locked,
    )
    if rows is None:
        return None
    workflow, execution = rows
    row = row_of(workflow)
    workflow._state.fields_cache.update(hero)
    if precondition_checked.receivers:
        precondition_checked.send_robust(cls, workflow=workflow, execution=execution, verdict="proceed")
    return ClaimedExecution(workflow, execution, definition, token, row=row)


def hand_off(claimed: ClaimedExecution, runner: Runner) -> HandOff | None:
    """End a step that succeeded, and begin or schedule the next, in one statement; None if nothing was written."""
    execution = claimed.execution
    using = alias_of(execution)
    if not fast_path_sql.can_run(using) or workflow_transitioned.receivers:
        return None
    if execution.signal_id is not None:
        # The portable path consumes it in the same commit.
        return None
    # Not the body's own instance: that one may have anything set on it.
    workflow = claimed.as_claimed()
    cls = type(workflow)
    following = cls.steps.next_after(execution.step_name)
    now = clock.now(using)
    if following is None:
        if not fast_path_sql.finish(using, workflow.pk, execution.pk, claimed.token, now):
            return None
        _note_end(claimed, now)
        return HandOff(None)
    try:
        built = scheduling.build(workflow, following, now=now, trace=claimed.trace)
    except Exception:  # noqa: BLE001 - invalid options: the portable path deals with them
        return None
    if clock.utc(built.scheduled_for) > now or not runner.may_continue_inline(built, execution.queue):
        if dispatch.enqueues_inside(using):
            return None  # the job has to be in the same commit
        if _end_and_insert(claimed, workflow, built, now) is None:
            return None
        dispatch.send(built)
        return HandOff(None)
    if not _is_plain(cls, following):
        return None
    hero = _look_up_hero(cls, workflow.hero_type_id, workflow.hero_id, using)
    if hero is None:
        return None

    token = uuid4()
    moment = clock.local(now)
    built.state = ExecutionState.IN_PROGRESS
    built.started_at = built.scheduled_for = moment
    built.process_id = runner.process_id
    built.attempt_token = token
    built.handed_off = True
    written = _end_and_insert(claimed, workflow, built, now)
    if written is None:
        return None
    _, metadata = written
    row = claimed.row | {
        "metadata": metadata,
        "current_step_name": built.step_name,
        "next_step_name": built.step_name,
        "updated_at": moment,
        "state": WorkflowState.PERFORMING,
    }
    fresh = cls.from_db(using, list(row), list(row.values()))
    fresh._state.fields_cache.update(hero)
    if precondition_checked.receivers:
        precondition_checked.send_robust(cls, workflow=fresh, execution=built, verdict="proceed")
    return HandOff(ClaimedExecution(fresh, built, following, token, row=row))


def _end_and_insert(
    claimed: ClaimedExecution, workflow: Workflow, following: StepExecution, now: datetime
) -> tuple[Any, Any] | None:
    """Write both in one statement and update their instances; return what the statement returned."""
    execution = claimed.execution
    using, options = alias_of(execution), workflow.job_options
    written = fast_path_sql.hand_off(
        using, workflow.pk, execution.pk, claimed.token, following, now, built_with=options
    )
    if written is None:
        return None
    following.pk = written[0]
    following._state.adding = False
    _note_end(claimed, now)
    return written


def _is_plain(cls: type[Workflow], definition: StepDefinition) -> bool:
    return not cls._geneva.cancel_conditions and not definition.conditional and not definition.resumable


def _look_up_hero(cls: type[Workflow], hero_type_id: Any, hero_id: Any, using: str) -> dict[str, Any] | None:
    """Return what to cache of the hero on the next body's instance; None leaves the case to the portable path.

    It is read just before the statement, not under the lock: a hero deleted in between is as gone as one
    deleted just after the commit.
    """
    if cls._geneva.may_proceed_without_hero:
        return {}
    if hero_type_id is None:
        return None
    try:
        probe = Workflow(hero_type_id=hero_type_id, hero_id=hero_id)
        probe._state.db = using
        hero = probe.hero
    except Exception:  # noqa: BLE001 - the portable path looks it up again, and handles this
        return None
    return None if hero is None else {"hero": hero}


def _note_end(claimed: ClaimedExecution, now: datetime) -> None:
    execution = claimed.execution
    execution.state, execution.outcome = ExecutionState.COMPLETED, Outcome.SUCCESS
    execution.finished_at = clock.local(now)
    if execution_finalized.receivers:
        workflow = claimed.workflow
        execution_finalized.send_robust(type(workflow), workflow=workflow, execution=execution, fenced=False)
