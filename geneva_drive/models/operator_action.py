"""What a person did to a workflow, and why."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from geneva_drive.models.fields import IdentifierField, JSONColumn, UTCDateTimeField, primary_key
from geneva_drive.models.querysets import RecordQuerySet

__all__ = ["OperatorAction"]


class OperatorAction(models.Model):
    """One pause, resume, resume_at, skip, cancel or reschedule by hand."""

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
