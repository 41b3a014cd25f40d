"""Hand scheduled executions to the configured dispatcher, with the commit that writes them.

A dispatcher is called after the commit. One whose jobs are in the same database is called inside the transaction,
so that row and job are committed together.

This module is the one dynamic edge of the layers: it imports what the settings name.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
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


_made: dict[str, _Dispatcher] = {}


def configured_dispatcher() -> _Dispatcher:
    """Return the dispatcher that the settings name.

    Raises
    ------
    DispatcherError
        It cannot be imported or made.
    """
    given = settings.DISPATCHER
    # Options may be dicts, which cannot be keys of a cache.
    key = given if isinstance(given, str) else repr(given)
    if key not in _made:
        path, options = (given, {}) if isinstance(given, str) else given
        try:
            _made[key] = import_string(path)(**options)
        except (ImportError, TypeError, ValueError) as error:
            raise DispatcherError(
                f"GENEVA_DRIVE['DISPATCHER'] names {path!r}, which cannot be used: {error}"
            ) from error
    return _made[key]


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
    """Whether the dispatcher's jobs are in this database, and written in the commit of their rows."""
    try:
        return configured_dispatcher().enqueues_inside(using)
    except DispatcherError:
        return False  # reported after the commit, when it can do no harm


def dispatch(execution: StepExecution) -> bool:
    """Dispatch now, unless it is due beyond the dispatcher's lookahead: then housekeeping does it near its time.

    A failure is logged and changes nothing: the row stays due and without ``dispatched_at``, for housekeeping.
    """
    using = alias_of(execution)
    inside = connections[using].in_atomic_block
    try:
        dispatcher = configured_dispatcher()
        now = clock.now(using)
        scheduled_for = clock.utc(execution.scheduled_for)
        lookahead = dispatcher.lookahead()
        if lookahead is not None and scheduled_for > now + lookahead:
            return False
        options = {
            "queue": execution.queue,
            "priority": execution.priority,
            "scheduled_for": scheduled_for,
            "delay": max(0.0, (scheduled_for - now).total_seconds()),
            "using": using,
        }
        # Inside the transaction a savepoint, so that an error of the database breaks no more than this.
        with transaction.atomic(using=using) if inside else nullcontext():
            job_id = dispatcher.enqueue(execution.pk, options)
        if dispatcher.remembers:
            # Not a state, so no lock is taken. Whoever has run the row by now may have put it off beyond the
            # lookahead, and that time is housekeeping's again.
            row = type(execution)._base_manager.using(using).filter(pk=execution.pk)
            now = clock.now(using)
            if lookahead is not None:
                row = row.filter(scheduled_for__lte=clock.local(now + lookahead))
            row.update(dispatched_at=clock.local(now), job_id=job_id)
    except Exception as error:
        if inside and isinstance(error, OperationalError | InterfaceError):
            # A deadlock or a lost connection ended the whole transaction, which is retried.
            raise
        logger.exception(
            "Execution %s could not be dispatched. It stays due; housekeeping will send it again.",
            execution.pk,
            extra=about(_workflow_of(execution), execution),
        )
        return False
    return True


def dispatch_forgotten(execution: StepExecution, before: datetime) -> bool | None:
    """Dispatch what was never dispatched, or not since ``before``; None when somebody else has done it.

    Of two processes that find the row one takes it. One that dies between taking and sending leaves a row that
    looks dispatched: it is sent again after ``OVERDUE_AFTER``.
    """
    using = alias_of(execution)
    row = type(execution)._base_manager.using(using).filter(pk=execution.pk, state=ExecutionState.SCHEDULED)
    forgotten = Q(dispatched_at__isnull=True) | Q(dispatched_at__lt=clock.local(before))
    if not row.filter(forgotten, on_hold=False).update(dispatched_at=clock.local(clock.now(using))):
        return None
    if dispatch(execution):
        return True
    row.update(dispatched_at=None)
    return False


def _workflow_of(execution: StepExecution) -> Workflow | None:
    """Return the workflow for a log record; a failing look-up must not hide what is logged."""
    try:
        return execution.workflow
    except Exception:  # noqa: BLE001
        return None
