"""A process that runs steps, and its heartbeat."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils.translation import gettext_lazy as _

from geneva_drive.models.fields import IdentifierField, UTCDateTimeField

__all__ = ["Process"]


class Process(models.Model):
    """One start of one process. Its identity is a fresh id, never a host name.

    An execution in progress names its process; recovery looks at the heartbeat, not at how long the
    step takes. The row goes when no execution in progress names it any more.
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
        """Whether it takes work from this queue. A comma never occurs in a queue's name."""
        return not self.queues or queue in self.queues.split(",")

    def __str__(self) -> str:
        return f"{self.kind} {self.hostname}:{self.pid}"
