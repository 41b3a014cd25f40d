"""After the commit, on the database that holds the row, to the configured dispatcher.

This module is the one dynamic edge of the layers: it imports what the settings name.
"""

from __future__ import annotations

import logging
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Protocol

from django.core.signals import setting_changed
from django.db import transaction
from django.utils.module_loading import import_string

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.exceptions import DispatcherError
from geneva_drive.lifecycle.locking import alias_of
from geneva_drive.states import ExecutionState

if TYPE_CHECKING:
    from geneva_drive.models.step_execution import StepExecution

__all__ = ["configured_dispatcher", "send"]

logger = logging.getLogger("geneva_drive.dispatch")


class _Dispatcher(Protocol):
    remembers: bool

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None: ...


def configured_dispatcher() -> _Dispatcher:
    """Return the dispatcher that the settings name.

    Raises
    ------
    DispatcherError
        It cannot be imported or made.
    """
    given = settings.DISPATCHER
    path, options = (given, {}) if isinstance(given, str) else given
    return _make(path, tuple(sorted(options.items())))


@lru_cache
def _make(path: str, options: tuple[tuple[str, Any], ...]) -> _Dispatcher:
    try:
        dispatcher: _Dispatcher = import_string(path)(**dict(options))
    except (ImportError, TypeError) as error:
        raise DispatcherError(
            f"GENEVA_DRIVE['DISPATCHER'] names {path!r}, which cannot be used: {error}"
        ) from error
    return dispatcher


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "GENEVA_DRIVE":
        _make.cache_clear()


setting_changed.connect(_forget)


def send(execution: StepExecution) -> None:
    """Dispatch a scheduled execution after the commit that wrote it; never when that rolls back."""
    if execution.held or execution.state != ExecutionState.SCHEDULED:
        return
    transaction.on_commit(partial(dispatch, execution), using=alias_of(execution), robust=True)


def dispatch(execution: StepExecution) -> bool:
    """Dispatch now. A failure is logged and costs nothing: the row stays due, housekeeping sees it."""
    using = alias_of(execution)
    options = {
        "queue": execution.queue,
        "priority": execution.priority,
        "scheduled_for": clock.utc(execution.scheduled_for),
        "using": using,
    }
    try:
        dispatcher = configured_dispatcher()
        job_id = dispatcher.enqueue(execution.pk, options)
        if dispatcher.remembers:
            # Not a state: whoever runs the row meanwhile does not mind, so no lock is taken.
            type(execution)._base_manager.using(using).filter(pk=execution.pk).update(
                dispatched_at=clock.local(clock.now(using)), job_id=job_id
            )
    except Exception:
        logger.exception(
            "Execution %s could not be dispatched. It stays due; housekeeping will send it again.",
            execution.pk,
        )
        return False
    return True
