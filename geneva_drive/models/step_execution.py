"""The model of step executions: one attempt at one step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from geneva_drive.exceptions import InvalidStateError
from geneva_drive.models.fields import (
    IdentifierField,
    JSONColumn,
    UTCDateTimeField,
    active_workflow_field,
    primary_key,
)
from geneva_drive.models.querysets import StepExecutionQuerySet
from geneva_drive.states import ACTIVE, ExecutionState, Outcome

if TYPE_CHECKING:
    from django.db.models.base import ModelBase


class NotNullIndex(models.Index):
    """An index of the rows that have a value in one column.

    MySQL and MariaDB have no partial indexes, and get one of all rows. With a ``condition`` in ``Meta``, Django
    would create no index there.
    """

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        (field,) = self.fields
        has_value = models.Q(**{f"{field}__isnull": False})
        partial = schema_editor.connection.features.supports_partial_indexes
        plain = models.Index(fields=[field], name=self.name, condition=has_value if partial else None)
        return plain.create_sql(model, schema_editor, using=using, **kwargs)


_LOOSE: dict[str, Any] = {
    "on_delete": models.DO_NOTHING,
    "db_constraint": False,
    "db_index": False,
}
"""A foreign key without a constraint, an action on delete and an index."""


class StepExecution(models.Model):
    """One attempt at one step. A row is started once; after a crash there is another row.

    All times are by the database's clock. A process that finishes the row must still have its
    ``attempt_token``; otherwise it is fenced and writes nothing.
    """

    id = primary_key()
    workflow = models.ForeignKey("geneva_drive.Workflow", on_delete=models.CASCADE, related_name="executions")
    step_name = IdentifierField(max_length=150)
    state = IdentifierField(max_length=20, choices=ExecutionState.choices, default=ExecutionState.SCHEDULED)
    outcome = IdentifierField(max_length=20, choices=Outcome.choices, null=True, blank=True)
    queue = IdentifierField(max_length=100)
    priority = models.IntegerField(default=0, db_default=0, help_text=_("Lower runs first."))
    scheduled_for = UTCDateTimeField()
    # Set while the workflow is paused, so that a claim reads only rows that may run. On a row in progress: a
    # pause or cancel was requested, which a resumable step sees at its next checkpoint.
    on_hold = models.BooleanField(default=False, db_default=False)
    started_at = UTCDateTimeField(null=True, blank=True)
    finished_at = UTCDateTimeField(null=True, blank=True)
    # Finished rows keep the id of a deleted process.
    process = models.ForeignKey(
        "geneva_drive.Process", null=True, blank=True, related_name="executions", **_LOOSE
    )
    attempt_token = models.UUIDField(null=True, blank=True)
    # Created as claimed by the process that finished the previous step. If that process dies, the body may not
    # have started, and the crash does not count against the step.
    handed_off = models.BooleanField(default=False, db_default=False)
    job_id = models.CharField(max_length=255, null=True, blank=True)
    dispatched_at = UTCDateTimeField(null=True, blank=True)
    error_class = models.CharField(max_length=255, null=True, blank=True)
    error_message = models.TextField(null=True, blank=True)
    error_traceback = models.TextField(null=True, blank=True)
    deferred_since = UTCDateTimeField(null=True, blank=True)
    waiting_since = UTCDateTimeField(null=True, blank=True)
    wait_deadline = UTCDateTimeField(null=True, blank=True)
    # Signals are deleted with their workflow, after its executions. Every query names the workflow too.
    signal = models.ForeignKey(
        "geneva_drive.Signal", null=True, blank=True, related_name="executions", **_LOOSE
    )
    continues_from = models.ForeignKey("self", null=True, blank=True, related_name="+", **_LOOSE)
    cursor = JSONColumn(null=True, blank=True)
    iterations = models.BigIntegerField(default=0, db_default=0)
    iterations_total = models.BigIntegerField(null=True, blank=True)
    crashes = models.IntegerField(
        default=0, db_default=0, help_text=_("Consecutive crashes of this step before this attempt.")
    )
    metadata = JSONColumn(null=True, blank=True)
    created_at = UTCDateTimeField()
    active_workflow = active_workflow_field()

    objects = StepExecutionQuerySet.as_manager()

    class Meta:
        verbose_name = _("step execution")
        verbose_name_plural = _("step executions")
        constraints = [
            models.UniqueConstraint(fields=["active_workflow"], name="geneva_one_active_execution"),
        ]
        indexes = [
            # The worker: what is due on this queue at this priority?
            models.Index(
                fields=["state", "on_hold", "queue", "priority", "scheduled_for"], name="geneva_execution_due"
            ),
            # Timeouts: whose deadline has passed? Maintenance: what is waiting?
            models.Index(fields=["state", "on_hold", "wait_deadline"], name="geneva_execution_timeout"),
            # Recovery: what is this process (or none) running, and since when?
            models.Index(fields=["state", "process", "started_at"], name="geneva_execution_running"),
            # Lists: what failed with this error? What has been waiting too long?
            NotNullIndex(fields=["error_class"], name="geneva_execution_error"),
            NotNullIndex(fields=["waiting_since"], name="geneva_execution_waiting"),
        ]

    def __str__(self) -> str:
        return f"{self.step_name} ({self.state})"

    @property
    def is_active(self) -> bool:
        """Whether it is the workflow's one active execution."""
        return self.state in ACTIVE

    @property
    def reattempts(self) -> int:
        """The number of consecutive reattempts of this step by policy before this attempt."""
        # Copied from row to row, so that earlier rows need not be counted.
        count = self.metadata.get("reattempts", 0) if isinstance(self.metadata, dict) else 0
        return count if isinstance(count, int) else 0

    @property
    def trace(self) -> dict[str, str] | None:
        """The trace context in which the workflow was started, if the project traces."""
        carried = self.metadata.get("trace") if isinstance(self.metadata, dict) else None
        return carried if isinstance(carried, dict) else None

    def save(
        self,
        *,
        force_insert: bool | tuple[ModelBase, ...] = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
    ) -> None:
        """Write a new row; of an existing one, save only ``metadata``."""
        if not self._state.adding:
            allowed = {"metadata"}
            refused = set(update_fields or ()) - allowed
            if refused:
                raise InvalidStateError(
                    f"Step execution {self.pk}: {', '.join(sorted(refused))} cannot be saved directly. Use the "
                    "workflow's pause(), resume(), resume_at(), skip() or cancel()."
                )
            update_fields = allowed
        super().save(
            force_insert=force_insert, force_update=force_update, using=using, update_fields=update_fields
        )
