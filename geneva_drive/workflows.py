"""Work of our own that takes long: an operator's action on everything that a filter matches."""

from __future__ import annotations

from typing import Any

from geneva_drive.definition.steps import resumable_step
from geneva_drive.exceptions import GenevaDriveError
from geneva_drive.models.workflow import Workflow
from geneva_drive.selecting import Selection

__all__ = ["ACTIONS", "BulkAction", "perform"]

_MOST_FAILURES = 1000

#: What can be done to many, with the arguments that each takes.
ACTIONS = ("pause", "resume", "resume_at", "skip", "cancel", "reschedule", "signal")


def perform(workflow: Workflow, action: str, arguments: dict[str, Any], *, by: str, reason: str) -> None:
    """Do one thing to one workflow, as its methods do.

    Raises
    ------
    GenevaDriveError
        The workflow does not allow it.
    """
    match action:
        case "resume_at":
            workflow.resume_at(arguments["step"], by=by, reason=reason)
        case "reschedule":
            workflow.reschedule(arguments.get("at"), by=by, reason=reason)
        case "signal":
            workflow.signal(
                arguments["name"], arguments.get("payload"), idempotency_key=arguments.get("idempotency_key")
            )
        case "pause" | "resume" | "skip" | "cancel":
            getattr(workflow, action)(by=by, reason=reason)
        case _:
            raise ValueError(
                f"{action!r} is nothing that can be done to many. There are: {', '.join(ACTIONS)}."
            )


class BulkAction(Workflow):
    """Acts on one workflow after the other, by key, and counts. What failed is listed in ``metadata``.

    ``metadata`` holds ``action``, ``arguments``, ``selection`` (of `Selection.as_dict`), ``by``, ``reason``,
    ``total``, and as it goes on ``done``, ``failed`` and ``failures`` (key and message, the first thousand).
    """

    may_proceed_without_hero = True

    class Meta:
        app_label = "geneva_drive"

    @resumable_step
    def act(self, iteration: Any) -> None:
        order: dict[str, Any] = self.metadata
        using = self._state.db
        assert using is not None
        selection = Selection(**{**order["selection"], "states": tuple(order["selection"].get("states", ()))})
        rows = selection.apply(Workflow.objects.using(using), using).exclude(pk=self.pk)
        iteration.total = order["total"]
        for workflow in iteration.iterate_queryset(rows.order_by("pk")):
            try:
                perform(workflow, order["action"], order["arguments"], by=order["by"], reason=order["reason"])
                order["done"] = order.get("done", 0) + 1
            except GenevaDriveError as refused:
                order["failed"] = order.get("failed", 0) + 1
                failures = order.setdefault("failures", [])
                if len(failures) < _MOST_FAILURES:
                    failures.append([str(workflow.pk), str(refused)])
            self.save(update_fields=["metadata"])
