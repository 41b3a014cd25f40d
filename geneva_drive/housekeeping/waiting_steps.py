"""Waiting executions that no signal will wake, since a deploy changed their step.

A sender compares a signal with what the step waits for at that moment, and no sender comes by after a deploy.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import InterfaceError, OperationalError
from django.db.models import Exists, OuterRef

from geneva_drive.definition.matchers import name_to_look_for
from geneva_drive.definition.registry import registry
from geneva_drive.lifecycle import signals, transitions
from geneva_drive.lifecycle.unit_of_work import UnitOfWork, with_locked
from geneva_drive.logs import about
from geneva_drive.models.records import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.states import UNCONSUMED, ExecutionState, WorkflowState

logger = logging.getLogger("geneva_drive.signal")

_PAGE = 500


def wake_waiting(using: str) -> int:
    """Move waiting executions that no signal would wake any more; return how many.

    Their step became a gravestone, waits no longer, or now waits for a signal that was sent before. Those of
    paused workflows meet their signals on resume.
    """
    woken = 0
    waiting = StepExecution.objects.using(using).filter(state=ExecutionState.WAITING, on_hold=False)
    for label, step_name in waiting.order_by().values_list("workflow__type", "step_name").distinct():
        cls = registry.get(label)
        definition = cls.steps.resolve(step_name) if cls is not None else None
        if definition is None:
            continue  # left to code that declares it
        rows = waiting.filter(workflow__type=label, step_name=step_name)
        if not definition.removed and definition.wait_for is not None:
            unconsumed = Signal.objects.filter(workflow=OuterRef("workflow"), state__in=UNCONSUMED)
            name = name_to_look_for(definition.wait_for)
            rows = rows.filter(Exists(unconsumed.filter(name=name) if name is not None else unconsumed))
        for page in rows.pages("workflow_id", size=_PAGE):
            for pk, workflow_id in page:
                woken += _wake_one(using, pk, workflow_id)
    return woken


def _wake_one(using: str, pk: Any, workflow_id: Any) -> bool:
    def act(unit: UnitOfWork) -> bool:
        moved = signals.revisit(unit)
        if moved:
            transitions.touch(unit)
        return moved

    try:
        return bool(
            with_locked(
                using,
                workflow_id,
                act,
                execution_pk=pk,
                execution_state=ExecutionState.WAITING,
                workflow_state=WorkflowState.READY,
            )
        )
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        # One bad row does not stop the others.
        extra = about(workflow_id=workflow_id, execution_id=pk)
        logger.exception(
            "Checking whether the signal of waiting execution %s has come failed.", pk, extra=extra
        )
        return False
