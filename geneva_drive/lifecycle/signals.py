"""Signals: send one, find one for a gate, wake what waits. All of it under the workflow's lock.

A sender writes its signal and, if the workflow is waiting for it, attaches it and schedules the execution. A
gate looks for a signal and, if there is none, lets the execution wait. Both hold the workflow's lock while they
do, so whichever comes second sees what the first one did, and the order of arrival never matters.
"""

from __future__ import annotations

import logging
import threading
from itertools import count
from typing import Any

from django.db import IntegrityError, OperationalError, connections, transaction

from geneva_drive import serialization
from geneva_drive.conf import settings
from geneva_drive.definition.collection import StepDefinition
from geneva_drive.definition.decisions import PASSED_OVER
from geneva_drive.definition.matchers import (
    LONGEST_IDEMPOTENCY_KEY,
    Matcher,
    check_storable,
    checked_signal_name,
    name_to_look_for,
    signal_matches,
)
from geneva_drive.exceptions import InvalidSignalError, WorkflowNotOngoing
from geneva_drive.lifecycle import allowed, transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.locking import alias_of, is_conflict, lock_active_execution, lock_signals
from geneva_drive.lifecycle.unit_of_work import UnitOfWork, read_only, with_locked
from geneva_drive.logs import about
from geneva_drive.models.records import Signal
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ENDED, UNCONSUMED, ExecutionState, SignalState, WorkflowState

logger = logging.getLogger("geneva_drive.signal")

_PAGE = 20
"""Signals that one query reads while a matcher looks at each."""


def send(workflow: Workflow, name: str, payload: Any, *, idempotency_key: str | None) -> Signal:
    """Write a signal, and everything that it causes, in the caller's transaction.

    Raises
    ------
    InvalidSignalError, PayloadError
        Before anything is written.
    WorkflowNotOngoing
        The workflow has ended, and has no signal under that key.
    """
    name = checked_signal_name(name)
    key = None if idempotency_key is None else _checked_key(idempotency_key)
    text = serialization.dumps(payload, limit=settings.MAX_PAYLOAD_BYTES, what="payload")
    using = alias_of(workflow)

    def act(unit: UnitOfWork) -> Signal:
        locked = unit.workflow
        if locked.state in ENDED:
            found = lock_signals(locked).filter(name=name, idempotency_key=key).first() if key else None
            if found is None:
                raise WorkflowNotOngoing(allowed.refusal("signal", locked))
            return _as_duplicate(found)
        signal = _insert(unit, name, text, key)
        if not signal.duplicate:
            transitions.touch(unit)
            _wake_by(unit, signal)
        return signal

    try:
        # With a key it may be tried again after a commit whose acknowledgement was lost.
        signal = with_locked(using, workflow.pk, act, repeatable=key is not None)
    except (OperationalError, IntegrityError) as error:
        if isinstance(error, OperationalError) and not is_conflict(error):
            raise
        # The caller's own snapshot may be older than the first delivery: it can neither lock nor see it.
        first = _look_from_outside(workflow, name, key, using)
        if first is None:
            raise
        signal = _as_duplicate(first)
    if signal is None:
        raise WorkflowNotOngoing(f"Workflow {workflow.pk} is gone; it cannot be signaled.")
    signal.workflow = workflow
    return signal


def _checked_key(key: str) -> str:
    if not isinstance(key, str):
        raise InvalidSignalError(
            f"the idempotency key {key!r} is not a string. Pass one, such as the event's id."
        )
    if not key.strip():
        raise InvalidSignalError(
            f"the idempotency key {key!r} is empty. Pass the event's id, or leave it out."
        )
    if len(key) > LONGEST_IDEMPOTENCY_KEY:
        raise InvalidSignalError(
            f"the idempotency key has {len(key)} characters; at most {LONGEST_IDEMPOTENCY_KEY} fit. Pass a digest "
            "of it."
        )
    return check_storable(key, "idempotency key")


def _insert(unit: UnitOfWork, name: str, text: str, key: str | None) -> Signal:
    """Write the row, or return the one that has the key already. The transaction stays usable."""
    workflow, using = unit.workflow, unit.using
    if key is not None:
        # Most second deliveries end here. No locking read: on InnoDB one that finds nothing locks a gap, and
        # two senders that both hold a gap and insert into it are a deadlock.
        signals = workflow.signals.db_manager(using)
        known: Signal | None = signals.filter(name=name, idempotency_key=key).first()
        if known is not None:
            return _as_duplicate(known)
    signal = Signal(
        workflow=workflow,
        name=name,
        idempotency_key=key,
        state=SignalState.PENDING,
        # As a gate will read it, so that a matcher sees the same in both orders of arrival.
        payload=serialization.loads(text),
        created_at=unit.moment,
    )
    if key is None:
        signal.save(force_insert=True, using=using)
        return signal
    try:
        with transaction.atomic(using=using):
            signal.save(force_insert=True, using=using)
    except IntegrityError:
        # Under repeatable read the plain look above may have missed it.
        known = lock_signals(workflow).filter(name=name, idempotency_key=key).first()
        if known is None:
            raise
        return _as_duplicate(known)
    return signal


def _as_duplicate(signal: Signal) -> Signal:
    signal.duplicate = True
    return signal


def _look_from_outside(workflow: Workflow, name: str, key: str | None, using: str) -> Signal | None:
    """Look for a committed signal on a separate connection, which only PostgreSQL's snapshots need."""
    if key is None or connections[using].vendor != "postgresql" or not connections[using].in_atomic_block:
        return None
    found: list[Signal] = []

    def look() -> None:
        try:
            found.extend(workflow.signals.db_manager(using).filter(name=name, idempotency_key=key))
        finally:
            connections[using].close()

    thread = threading.Thread(target=look, name="geneva-signal")
    thread.start()
    thread.join()
    return found[0] if found else None


def _wake_by(unit: UnitOfWork, signal: Signal) -> None:
    """Schedule the waiting execution if it waits for this signal, or if only its gate can tell."""
    workflow, execution = unit.workflow, lock_active_execution(unit.workflow)
    if (
        execution is None
        or execution.state != ExecutionState.WAITING
        or workflow.state != WorkflowState.READY
        or execution.on_hold
    ):
        return
    unit.execution = execution
    definition = declared_step(unit)
    if definition is not None and definition.wait_for is not None:
        signal.workflow = workflow
        with read_only(unit):
            if not signal_matches(definition.wait_for, signal):
                return
        transitions.attach(unit, signal)
    # Otherwise code that knows the step, or what it is by now, decides at its gate.
    transitions.wake(unit)


def declared_step(unit: UnitOfWork) -> StepDefinition | None:
    """Return the step that waits as this code declares it, None for one that it does not declare."""
    if not type(unit.workflow)._geneva.is_startable:
        return None
    return unit.workflow.steps.resolve(unit.execution.step_name)


def find(workflow: Workflow, matcher: Matcher) -> Signal | None:
    """Return the oldest unconsumed signal of a locked workflow that ``matcher`` takes.

    What the matcher raises is raised: a signal that cannot be judged is not passed over.
    """
    rows = lock_signals(workflow).filter(state__in=UNCONSUMED)
    name = name_to_look_for(matcher)
    if name is not None:
        rows = rows.filter(name=name)
    # In pages, not by a server-side cursor: payloads can be large, and mostly the first one is taken.
    for start in count(0, _PAGE):
        page = list(rows[start : start + _PAGE])
        for signal in page:
            signal.workflow = workflow
            if signal_matches(matcher, signal):
                return signal
        if len(page) < _PAGE:
            break
    return None


def revisit(unit: UnitOfWork) -> bool:
    """Check a waiting execution against what its step is by now, and the signals that are there.

    A gravestone is passed over. A step that does not wait any more, or whose signal is there, is scheduled for
    now.

    Returns
    -------
    bool
        False when it is left waiting: none of that applies, or this code does not declare the step.
    """
    workflow, execution = unit.workflow, unit.execution
    definition = declared_step(unit)
    if definition is None:
        return False
    if definition.removed:
        apply_decision(unit, PASSED_OVER)
        return True
    if definition.wait_for is not None and execution.signal_id is None:
        try:
            with read_only(unit):
                signal = find(workflow, definition.wait_for)
        except OperationalError:
            raise
        except Exception:
            # Its gate raises it again, where the step's policies decide and the error is recorded.
            extra = about(workflow, execution)
            logger.exception(
                "%s: the matcher in wait_for of the step %s raised an exception.",
                workflow,
                execution.step_name,
                extra=extra,
            )
        else:
            if signal is None:
                return False
            transitions.attach(unit, signal)
    transitions.wake(unit)
    return True
