"""One transaction on one workflow: lock, check, act, write, send.

Everything that moves an existing workflow goes through `with_locked`, except the statements of
``execution.fast_path_sql``, which do the same in the database.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from django.db import InterfaceError, OperationalError, connections, transaction

from geneva_drive import clock
from geneva_drive.events import Pending
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.lifecycle import dispatch, locking
from geneva_drive.models.records import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState, WorkflowState

if TYPE_CHECKING:
    from uuid import UUID

_T = TypeVar("_T")

_ATTEMPTS = 12
_NO_PATIENCE = timedelta(0)


@dataclass(slots=True)
class UnitOfWork:
    """A locked workflow, what becomes of it, and what is sent when that is committed.

    Attributes
    ----------
    workflow
        Locked, as it is now.
    execution
        The execution that is moved: locked, or new. May be None where no fence asks for one.
    following
        The execution to dispatch with the commit: a new one, which is written first, or `execution` itself.
    now, moment
        The database's time, in UTC and as a column takes it.
    pending
        Events to send after the commit.
    """

    using: str
    workflow: Workflow
    # A StepExecution nearly everywhere; the few places that may have none ask.
    execution: Any
    pending: Pending
    now: datetime
    moment: datetime
    following: StepExecution | None = None


def change(row: Workflow | StepExecution | Signal, **values: Any) -> None:
    """Set columns in memory, to be written by the next ``flush``."""
    for name, value in values.items():
        setattr(row, name, value)
    row.__dict__.setdefault("_dirty", set()).update(values)


def flush(row: Workflow | StepExecution | Signal) -> None:
    """Write what was changed: an INSERT for a new row, an UPDATE of the changed columns otherwise."""
    dirty: set[str] = row.__dict__.pop("_dirty", set())
    if row._state.adding:
        row.save(force_insert=True, using=row._state.db)
    elif dirty:
        type(row)._base_manager.using(row._state.db).filter(pk=row.pk).update(
            **{name: getattr(row, name) for name in dirty}
        )


def with_locked(
    using: str,
    workflow_pk: Any,
    act: Callable[[UnitOfWork], _T],
    *,
    execution_pk: Any = None,
    active: bool = False,
    execution_state: ExecutionState | None = None,
    token: UUID | None = None,
    workflow_state: WorkflowState | None = None,
    skip_locked: bool = False,
    pending: Pending | None = None,
    repeatable: bool = True,
    patience: timedelta = _NO_PATIENCE,
) -> _T | None:
    """Lock a workflow, let ``act`` move it, write what it changed, and send what follows with the commit.

    Parameters
    ----------
    execution_pk, active
        The execution to lock after the workflow, or whether to lock the active one, if there is one. Default: none.
    execution_state, token
        The fence. The execution must have this state and, in progress, this attempt's token.
    workflow_state
        The state that the workflow must have. Default: any.
    skip_locked
        Whether to pass over a workflow that somebody else has locked, where the database can do that.
    pending
        Collects the events for a caller that sends them itself. Default: they are sent after the commit.
    repeatable, patience
        As for `in_transaction`.

    Returns
    -------
    object or None
        What ``act`` returned. None when a row is gone, locked or fenced; nothing was written then.
    """

    def work() -> _T | None:
        if pending is not None:
            pending.clear()  # An earlier try of this transaction may have left some.
        workflow = locking.lock_workflow(workflow_pk, using, skip_locked=skip_locked)
        if workflow is None or workflow_state not in (None, workflow.state):
            return None
        execution = None
        if execution_pk is not None:
            execution = locking.lock_execution(workflow, execution_pk)
            if execution is None or execution.state != execution_state:
                return None
            if execution_state == ExecutionState.IN_PROGRESS and execution.attempt_token != token:
                return None
        elif active:
            execution = locking.lock_active_execution(workflow)
        now = clock.now(using)
        events = Pending() if pending is None else pending
        unit = UnitOfWork(using, workflow, execution, events, now, clock.local(now))
        result = act(unit)
        if unit.execution is not None:
            # Before what follows: the database allows one active execution.
            flush(unit.execution)
        if unit.following is not None:
            flush(unit.following)
            dispatch.send(unit.following)
        flush(workflow)
        if pending is None and events:
            events.send_after_commit(using)
        return result

    return in_transaction(using, work, repeatable=repeatable, patience=patience)


def in_transaction(
    using: str, work: Callable[[], _T], *, repeatable: bool = True, patience: timedelta = _NO_PATIENCE
) -> _T:
    """Run ``work()`` in a transaction, and again when the database gave up on it.

    Inside a caller's transaction nothing is retried, since that transaction is the caller's.

    Parameters
    ----------
    repeatable
        Whether ``work`` may run again after a connection was lost while committing, when nobody knows
        whether the commit was done. True for what is fenced, False for what creates rows.
    patience
        How long to retry when the server is unavailable, beyond the few tries that everything gets.
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
            lost = locking.is_lost_connection(error, connection)
            if not (locking.is_conflict(error) or (lost and repeatable)):
                raise
            if attempt >= _ATTEMPTS and not (lost and time.monotonic() < until):
                raise
            if lost:
                connection.close()
            # Full jitter, so that transactions that collided once do not meet again.
            time.sleep(random.uniform(0, min(0.5, 0.005 * 2**attempt)))


class _ReadOnlyContext:
    """Refuses flow control and signals, since conditions and matchers run under the lock."""

    only_reads = True

    def __init__(self, execution: StepExecution) -> None:
        self.execution = execution

    def leave(self, how: str, **_: Any) -> NoReturn:
        raise InvalidStateError(
            f"{how}() was called in a condition or a hook. Conditions and hooks must not change the "
            "workflow. Call it in the step."
        )

    def __getattr__(self, name: str) -> Any:
        raise InvalidStateError(f"{name} can be used only inside a step.")


@contextmanager
def read_only(unit: UnitOfWork, *, savepoint: bool = True) -> Iterator[None]:
    """Let the project's code look at a locked workflow.

    Parameters
    ----------
    savepoint
        Whether it may make queries of its own: one that fails must not break the transaction.
    """
    workflow = unit.workflow
    before = workflow._step
    workflow._step = _ReadOnlyContext(unit.execution)
    try:
        with transaction.atomic(using=unit.using) if savepoint else nullcontext():
            yield
    finally:
        workflow._step = before
