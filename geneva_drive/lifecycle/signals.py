"""Signals: send, attach, wake, settle. All of it under the workflow's lock.

A sender writes its signal and, if the workflow stands waiting for it, attaches it and schedules the execution. A
gate looks for a signal and, if there is none, parks. Both hold the workflow's lock while they do, so whichever
comes second sees what the first one did, and the order of arrival never matters.
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime
from itertools import count
from typing import Any

from django.apps import apps
from django.db import IntegrityError, OperationalError, connections, transaction

from geneva_drive import clock, serialization
from geneva_drive.conf import settings
from geneva_drive.definition.decisions import PASSED_OVER
from geneva_drive.definition.matchers import (
    LONGEST_IDEMPOTENCY_KEY,
    Matcher,
    check_storable,
    checked_signal_name,
    name_to_look_for,
    signal_matches,
)
from geneva_drive.events import Pending
from geneva_drive.exceptions import InvalidSignalError, WorkflowNotOngoing
from geneva_drive.lifecycle import allowed, dispatch, transitions
from geneva_drive.lifecycle.applying import apply_decision
from geneva_drive.lifecycle.locking import (
    alias_of,
    in_transaction,
    is_conflict,
    lock_active_execution,
    lock_signals,
    lock_workflow,
)
from geneva_drive.lifecycle.read_only import read_only
from geneva_drive.logs import about
from geneva_drive.models.records import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ENDED, UNCONSUMED, ExecutionState, SignalState, WorkflowState

logger = logging.getLogger("geneva_drive.signal")

_READ_AT_ONCE = 20
"""Signals that one query brings while a matcher is asked about each."""


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
    key = _checked_key(idempotency_key)
    text = serialization.dumps(payload, limit=settings.MAX_PAYLOAD_BYTES, what="payload")
    using = alias_of(workflow)

    def work() -> Signal:
        locked = lock_workflow(type(workflow), workflow.pk, using)
        if locked is None:
            raise WorkflowNotOngoing(f"Workflow {workflow.pk} is gone; it cannot be signaled.")
        if locked.state in ENDED:
            found = lock_signals(locked).filter(name=name, idempotency_key=key).first() if key else None
            if found is None:
                raise WorkflowNotOngoing(allowed.refusal("signal", locked))
            return _as_duplicate(found)
        signal = _insert(locked, name, text, key)
        if not signal.duplicate:
            now = clock.utc(signal.created_at)
            transitions.touch(locked, now=now)
            _wake_by(locked, signal, now)
            transitions.flush(locked)
        return signal

    try:
        # With a key, a commit whose acknowledgement was lost may be tried again.
        signal = in_transaction(using, work, repeatable=key is not None)
    except (OperationalError, IntegrityError) as error:
        if isinstance(error, OperationalError) and not is_conflict(error):
            raise
        # The caller's own snapshot may be older than the first delivery: it can neither lock nor see it.
        first = _look_from_outside(workflow, name, key, using)
        if first is None:
            raise
        signal = _as_duplicate(first)
    signal.workflow = workflow
    return signal


def _checked_key(key: str | None) -> str | None:
    if key is None:
        return None
    if not isinstance(key, str):
        raise InvalidSignalError(
            f"the idempotency key {key!r} is not a text. Give one, such as the event's id."
        )
    if not key.strip():
        raise InvalidSignalError(
            f"the idempotency key {key!r} is empty. Give the event's id, or leave it out."
        )
    if len(key) > LONGEST_IDEMPOTENCY_KEY:
        raise InvalidSignalError(
            f"the idempotency key has {len(key)} characters, at most {LONGEST_IDEMPOTENCY_KEY} fit. Give a digest "
            "of it."
        )
    return check_storable(key, "idempotency key")


def _insert(workflow: Workflow, name: str, text: str, key: str | None) -> Signal:
    """Write the row, or return the one that has the key already. The transaction stays usable."""
    using = alias_of(workflow)
    signals = workflow.signals.db_manager(using)
    if key is not None:
        # Most second deliveries end here. No locking read: on InnoDB one that finds nothing locks a gap, and
        # two senders that both hold a gap and insert into it are a deadlock.
        known = signals.filter(name=name, idempotency_key=key).first()
        if known is not None:
            return _as_duplicate(known)
    signal: Signal = apps.get_model("geneva_drive", "Signal")(
        workflow=workflow,
        name=name,
        idempotency_key=key,
        state=SignalState.PENDING,
        # As a gate will read it, so that a matcher sees the same in both orders of arrival.
        payload=serialization.loads(text),
        created_at=clock.local(clock.now(using)),
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
    """Look for a committed signal over a connection of its own; only PostgreSQL's snapshots call for it."""
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


def _wake_by(workflow: Workflow, signal: Signal, now: datetime) -> None:
    """Schedule the waiting execution if the signal is one that it waits for, or if only its gate can tell."""
    execution = lock_active_execution(workflow)
    if (
        execution is None
        or execution.state != ExecutionState.WAITING
        or workflow.state != WorkflowState.READY
        or execution.on_hold
    ):
        return
    definition = workflow.steps.resolve(execution.step_name) if type(workflow)._geneva.is_startable else None
    if definition is not None and definition.wait_for is not None:
        signal.workflow = workflow
        with read_only(workflow, execution):
            if not signal_matches(definition.wait_for, signal):
                return
        transitions.attach(execution, signal, now=now)
    # Without an attached signal: code that knows the step, or what it is by now, decides at its gate.
    _schedule(execution, now)


def _schedule(execution: StepExecution, now: datetime) -> None:
    transitions.wake(execution, now=now)
    transitions.flush(execution)
    dispatch.send(execution)


def find(workflow: Workflow, matcher: Matcher) -> Signal | None:
    """Return the oldest unconsumed signal of a locked workflow that ``matcher`` takes.

    Whatever the matcher raises passes through: a signal that cannot be judged is not passed over.
    """
    rows = lock_signals(workflow).filter(state__in=UNCONSUMED)
    name = name_to_look_for(matcher)
    if name is not None:
        rows = rows.filter(name=name)
    # In pages rather than by a cursor of the server's: payloads can be large, and mostly the first one is taken.
    for start in count(0, _READ_AT_ONCE):
        page = list(rows[start : start + _READ_AT_ONCE])
        for signal in page:
            signal.workflow = workflow
            if signal_matches(matcher, signal):
                return signal
        if len(page) < _READ_AT_ONCE:
            break
    return None


def revisit(workflow: Workflow, execution: StepExecution, *, now: datetime, pending: Pending) -> bool:
    """Let a waiting execution meet what its step is by now, and the signals that are there.

    A gravestone is passed over; a step that waits no more, or whose signal is there, is scheduled for now.
    Both rows are locked, and the execution is written; the workflow is not.

    Returns
    -------
    bool
        False when it is left waiting: nothing of that is so, or this code does not know the step.
    """
    definition = workflow.steps.resolve(execution.step_name) if type(workflow)._geneva.is_startable else None
    if definition is None:
        return False
    if definition.removed:
        following = apply_decision(workflow, execution, PASSED_OVER, now=now, pending=pending)
        if following is not None:
            transitions.flush(following)
            dispatch.send(following)
        return True
    if definition.wait_for is not None and execution.signal_id is None:
        try:
            with read_only(workflow, execution):
                signal = find(workflow, definition.wait_for)
        except OperationalError:
            raise
        except Exception:
            # At its gate, where the step's policies decide and the error is recorded.
            extra = about(workflow, execution)
            logger.exception(
                "%s: a matcher of the step %s raised.", workflow, execution.step_name, extra=extra
            )
        else:
            if signal is None:
                return False
            transitions.attach(execution, signal, now=now)
    _schedule(execution, now)
    return True
