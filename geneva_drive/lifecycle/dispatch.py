"""After the commit, on the database that holds the row, to the configured dispatcher.

A dispatcher whose jobs lie in that same database is told inside of the transaction, so that row and job are
committed together; there is no second layer of "after commit" then.

This module is the one dynamic edge of the layers: it imports what the settings name.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from django.core.signals import setting_changed
from django.db import InterfaceError, OperationalError, connections, transaction
from django.db.models import Q
from django.utils.module_loading import import_string

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.exceptions import DispatcherError
from geneva_drive.lifecycle.locking import alias_of
from geneva_drive.logs import about
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState

if TYPE_CHECKING:
    from django.core.checks import CheckMessage


logger = logging.getLogger("geneva_drive.dispatch")


class _Dispatcher(Protocol):
    remembers: bool

    def lookahead(self) -> timedelta | None: ...

    def enqueues_inside(self, using: str) -> bool: ...

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None: ...

    def check(self) -> list[CheckMessage]: ...

    def health(self) -> list[str]: ...


def configured_dispatcher() -> _Dispatcher:
    """Return the dispatcher that the settings name.

    Raises
    ------
    DispatcherError
        It cannot be imported or made.
    """
    given = settings.DISPATCHER
    # Options may be dicts, which no cache can be keyed by.
    key = given if isinstance(given, str) else repr(given)
    dispatcher = _made.get(key)
    if dispatcher is None:
        path, options = (given, {}) if isinstance(given, str) else given
        dispatcher = _made[key] = _make(path, options)
    return dispatcher


_made: dict[str, _Dispatcher] = {}


def _make(path: str, options: dict[str, Any]) -> _Dispatcher:
    try:
        dispatcher: _Dispatcher = import_string(path)(**options)
    except (ImportError, TypeError, ValueError) as error:
        raise DispatcherError(
            f"GENEVA_DRIVE['DISPATCHER'] names {path!r}, which cannot be used: {error}"
        ) from error
    return dispatcher


def _forget(*, setting: str, **_: Any) -> None:
    if setting in ("GENEVA_DRIVE", "TASKS"):
        _made.clear()


setting_changed.connect(_forget)


def send(execution: StepExecution) -> None:
    """Dispatch a scheduled execution with the commit that writes it; never when that rolls back."""
    if execution.on_hold or execution.state != ExecutionState.SCHEDULED:
        return
    using = alias_of(execution)
    if connections[using].in_atomic_block and enqueues_inside(using):
        dispatch(execution)
    else:
        transaction.on_commit(partial(dispatch, execution), using=using, robust=True)


def enqueues_inside(using: str) -> bool:
    """Whether the dispatcher's jobs lie in this database, and are written in the commit of their rows."""
    try:
        return configured_dispatcher().enqueues_inside(using)
    except DispatcherError:
        return False  # told after the commit, when nothing can be harmed by it


def dispatch(execution: StepExecution) -> bool:
    """Dispatch now, unless it is due beyond the dispatcher's reach: then the feeder does it near its time.

    A failure is logged and costs nothing: the row stays due and without ``dispatched_at``, for the feeder.
    """
    using = alias_of(execution)
    try:
        dispatcher = configured_dispatcher()
        now = clock.now(using)
        scheduled_for = clock.utc(execution.scheduled_for)
        reach = dispatcher.lookahead()
        if reach is not None and scheduled_for > now + reach:
            return False
        options = {
            "queue": execution.queue,
            "priority": execution.priority,
            "scheduled_for": scheduled_for,
            "delay": max(0.0, (scheduled_for - now).total_seconds()),
            "using": using,
        }
        with _savepoint(using):
            job_id = dispatcher.enqueue(execution.pk, options)
        if dispatcher.remembers:
            _remember(execution, using, job_id, reach)
    except Exception as error:
        if connections[using].in_atomic_block and isinstance(error, OperationalError | InterfaceError):
            # A deadlock or a lost connection took the whole transaction with it, which is tried again.
            raise
        logger.exception(
            "Execution %s could not be dispatched. It stays due; housekeeping will send it again.",
            execution.pk,
            extra=about(_workflow_of(execution), execution),
        )
        return False
    return True


def dispatch_forgotten(execution: StepExecution, before: datetime) -> bool | None:
    """Dispatch what has never been, or not since ``before``; None when somebody else has done it.

    Of two feeders one takes the row. One that dies between taking and sending leaves a row that looks
    dispatched: it is sent again after ``OVERDUE_AFTER``.
    """
    using = alias_of(execution)
    row = type(execution)._base_manager.using(using).filter(pk=execution.pk)
    forgotten = Q(dispatched_at__isnull=True) | Q(dispatched_at__lt=clock.local(before))
    scheduled = row.filter(forgotten, state=ExecutionState.SCHEDULED, on_hold=False)
    if not scheduled.update(dispatched_at=clock.local(clock.now(using))):
        return None
    if dispatch(execution):
        return True
    row.filter(state=ExecutionState.SCHEDULED).update(dispatched_at=None)
    return False


def _savepoint(using: str) -> AbstractContextManager[Any]:
    # Inside of the transaction an error of the database must not reach further than this.
    return transaction.atomic(using=using) if connections[using].in_atomic_block else nullcontext()


def _remember(execution: StepExecution, using: str, job_id: str | None, reach: timedelta | None) -> None:
    # Not a state: whoever runs the row meanwhile does not mind, so no lock is taken. But who has run it may
    # have put it off beyond reach already, and that time is the feeder's again.
    row = type(execution)._base_manager.using(using).filter(pk=execution.pk)
    now = clock.now(using)
    if reach is not None:
        row = row.filter(scheduled_for__lte=clock.local(now + reach))
    row.update(dispatched_at=clock.local(now), job_id=job_id)


def _workflow_of(execution: StepExecution) -> Workflow | None:
    """Return the workflow for a record; a look-up that fails must not hide why it is written."""
    try:
        return execution.workflow
    except Exception:  # noqa: BLE001
        return None
