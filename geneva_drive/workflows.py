"""The actions of operators: on one workflow, and on many by a workflow that runs in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import transaction

from geneva_drive.definition.steps import resumable_step
from geneva_drive.exceptions import GenevaDriveError
from geneva_drive.lifecycle.allowed import RULES
from geneva_drive.lifecycle.controls import note_action
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.selection import Selection

if TYPE_CHECKING:
    from django.db import models

__all__ = ["BulkAction", "perform", "start_for_operator"]

_MOST_LISTED = 1000
_LONGEST_MESSAGE = 500


def perform(workflow: Workflow, verb: str, arguments: dict[str, Any], *, by: str, reason: str) -> None:
    """Apply a verb of `geneva_drive.lifecycle.allowed.RULES` to a workflow, and record who did it and why.

    Parameters
    ----------
    arguments
        Those of the workflow's method, such as ``step`` for "resume_at".

    Raises
    ------
    GenevaDriveError
        The workflow does not allow it.
    """
    if verb not in RULES:
        raise ValueError(f"{verb!r} is none of {', '.join(RULES)}.")
    if verb != "signal":
        getattr(workflow, verb)(**arguments, by=by, reason=reason)
        return
    with transaction.atomic(using=workflow._state.db):
        workflow.signal(**arguments)
        note_action(workflow, "signal", by=by, reason=reason, after={"signal": arguments["name"]})


def start_for_operator(
    cls: type[Workflow], hero: models.Model | None, *, using: str, by: str, reason: str
) -> Workflow:
    """Start a workflow, and record who did it and why.

    Raises
    ------
    GenevaDriveError
        It cannot be started. Nothing was written.
    """
    with transaction.atomic(using=using):
        workflow = cls.start(hero, using=using)
        note_action(workflow, "start", by=by, reason=reason, after={"state": str(workflow.state)})
    return workflow


class BulkAction(Workflow):
    """Takes one action on many workflows, in the order of their keys. Its progress counts the refused ones too.

    ``metadata`` holds the order: ``action`` and ``arguments`` (of `perform`), ``selection`` (of
    `Selection.as_dict`), ``by``, ``reason`` and ``total``. It also holds the result: ``failed`` (how many were
    refused) and ``failures`` (the key and message of the first thousand, and the keys of the others).
    """

    may_proceed_without_hero = True

    class Meta:
        app_label = "geneva_drive"
        verbose_name = "bulk action"

    @resumable_step
    def act(self, iteration: Any) -> None:
        order: dict[str, Any] = self.metadata
        using = str(self._state.db)
        asked = {**order["selection"], "states": tuple(order["selection"].get("states", ()))}
        rows = Selection(**asked).apply(Workflow.objects.using(using), using)
        iteration.total = order["total"]
        for workflow in iteration.iterate_queryset(rows.order_by("pk")):
            try:
                perform(workflow, order["action"], order["arguments"], by=order["by"], reason=order["reason"])
            except GenevaDriveError as refused:
                self._refused(workflow, str(refused))

    def _refused(self, workflow: Workflow, message: str) -> None:
        order = self.metadata
        order["failed"] = order.get("failed", 0) + 1
        failures = order.setdefault("failures", [])
        listed = len(failures) < _MOST_LISTED
        failures.append([str(workflow.pk), message[:_LONGEST_MESSAGE] if listed else ""])
        self.save(update_fields=["metadata"])
