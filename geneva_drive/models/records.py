"""The models of signals, processes and operator actions."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from geneva_drive.definition.matchers import LONGEST_IDEMPOTENCY_KEY, LONGEST_SIGNAL_NAME
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.models.fields import IdentifierField, JSONColumn, UTCDateTimeField, primary_key
from geneva_drive.models.querysets import RecordQuerySet
from geneva_drive.states import SignalState


class Signal(models.Model):
    """An event for one workflow: ``workflow.signal(…)`` writes it, a step reads it as ``self.received_signal``.

    Pending until a step receives it, claimed until that step ends without a failure, then consumed. The two
    counters say how often that happened; they decide nothing.

    Attributes
    ----------
    duplicate
        Whether this call of ``signal()`` was a second delivery under the idempotency key. Not a column.
    """

    duplicate: bool = False

    id = primary_key()
    # The unique constraint's index begins with it.
    workflow = models.ForeignKey(
        "geneva_drive.Workflow", on_delete=models.CASCADE, related_name="signals", db_index=False
    )
    name = IdentifierField(max_length=LONGEST_SIGNAL_NAME)
    idempotency_key = IdentifierField(max_length=LONGEST_IDEMPOTENCY_KEY, null=True, blank=True)
    state = IdentifierField(max_length=20, choices=SignalState.choices, default=SignalState.PENDING)
    payload = JSONColumn(null=True, blank=True)
    claimed_count = models.IntegerField(default=0, db_default=0)
    consumed_count = models.IntegerField(default=0, db_default=0)
    created_at = UTCDateTimeField()
    claimed_at = UTCDateTimeField(null=True, blank=True, help_text=_("When a step last received it."))
    consumed_at = UTCDateTimeField(null=True, blank=True)

    objects = RecordQuerySet.as_manager()

    class Meta:
        verbose_name = _("signal")
        verbose_name_plural = _("signals")
        constraints = [
            # NULL keys never collide, on any of the databases.
            models.UniqueConstraint(
                fields=["workflow", "name", "idempotency_key"], name="geneva_one_signal_per_key"
            ),
        ]
        indexes = [
            # Before a step: which is the oldest unconsumed signal (of this name) of this workflow? Maintenance:
            # which workflows have unconsumed signals? For the latter the state comes first: most are consumed.
            models.Index(fields=["state", "workflow", "name", "created_at"], name="geneva_signal_unconsumed"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.state})"

    def save(self, **options: Any) -> None:
        """Write a new row. Raises InvalidStateError for an existing one."""
        if not self._state.adding:
            raise InvalidStateError(
                f"Signal {self.pk} cannot be changed. Send another one: workflow.signal({self.name!r}, …)."
            )
        super().save(**options)


class Process(models.Model):
    """One run of a worker process, with a new id each time.

    An execution in progress names its process; recovery looks at the heartbeat, not at how long the step takes.
    The row is deleted once no execution in progress names it.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    hostname = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    kind = IdentifierField(max_length=50, help_text=_("The dispatcher that it serves."))
    queues = models.TextField(blank=True, default="", help_text=_("Comma-separated; empty means all."))
    started_at = UTCDateTimeField()
    heartbeat_at = UTCDateTimeField()

    class Meta:
        verbose_name = _("process")
        verbose_name_plural = _("processes")
        indexes = [models.Index(fields=["heartbeat_at"], name="geneva_process_dead")]

    def serves(self, queue: str) -> bool:
        """Whether it takes work from this queue. A queue's name has no comma."""
        return not self.queues or queue in self.queues.split(",")

    def __str__(self) -> str:
        return f"{self.kind} {self.hostname}:{self.pid}"


class OperatorAction(models.Model):
    """A record of a pause, resume, resume_at, skip, cancel or reschedule by an operator or the project's code."""

    id = primary_key()
    workflow = models.ForeignKey(
        "geneva_drive.Workflow", on_delete=models.CASCADE, related_name="operator_actions"
    )
    action = IdentifierField(max_length=30)
    actor = models.CharField(max_length=255, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    before = JSONColumn(null=True, blank=True)
    after = JSONColumn(null=True, blank=True)
    created_at = UTCDateTimeField()

    objects = RecordQuerySet.as_manager()

    class Meta:
        verbose_name = _("operator action")
        verbose_name_plural = _("operator actions")

    def __str__(self) -> str:
        return f"{self.action} by {self.actor or 'somebody'}"
