"""The tables. The settings decide the types of keys, so functions create the fields that depend on them."""

import uuid

import django.db.models.deletion
from django.db import migrations, models

import geneva_drive.models.fields
import geneva_drive.models.step_execution
import geneva_drive.models.verbs


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [
        migrations.CreateModel(
            name="Process",
            fields=[
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False),
                ),
                ("hostname", models.CharField(max_length=255)),
                ("pid", models.PositiveIntegerField()),
                (
                    "kind",
                    geneva_drive.models.fields.IdentifierField(
                        help_text="The dispatcher that it serves.", max_length=50
                    ),
                ),
                (
                    "queues",
                    models.TextField(blank=True, default="", help_text="Comma-separated; empty means all."),
                ),
                ("started_at", geneva_drive.models.fields.UTCDateTimeField()),
                ("heartbeat_at", geneva_drive.models.fields.UTCDateTimeField()),
            ],
            options={
                "verbose_name": "process",
                "verbose_name_plural": "processes",
                "indexes": [models.Index(fields=["heartbeat_at"], name="geneva_process_dead")],
            },
        ),
        migrations.CreateModel(
            name="Workflow",
            fields=[
                ("id", geneva_drive.models.fields.primary_key()),
                ("type", geneva_drive.models.fields.IdentifierField(editable=False, max_length=150)),
                ("hero_id", geneva_drive.models.fields.HeroKeyField(blank=True, null=True)),
                ("state", geneva_drive.models.fields.IdentifierField(default="ready", max_length=20)),
                (
                    "current_step_name",
                    geneva_drive.models.fields.IdentifierField(
                        blank=True, help_text="Set while a step is running.", max_length=150, null=True
                    ),
                ),
                (
                    "next_step_name",
                    geneva_drive.models.fields.IdentifierField(blank=True, max_length=150, null=True),
                ),
                ("allow_multiple", models.BooleanField(db_default=False, default=False)),
                ("pause_requested_at", geneva_drive.models.fields.UTCDateTimeField(blank=True, null=True)),
                ("job_options", geneva_drive.models.fields.JSONColumn(blank=True, null=True)),
                (
                    "metadata",
                    geneva_drive.models.fields.JSONColumn(
                        blank=True, help_text="For the project's own use.", null=True
                    ),
                ),
                ("created_at", geneva_drive.models.fields.UTCDateTimeField()),
                ("started_at", geneva_drive.models.fields.UTCDateTimeField(blank=True, null=True)),
                (
                    "transitioned_at",
                    geneva_drive.models.fields.UTCDateTimeField(
                        blank=True, help_text="When it was last finished, canceled or paused.", null=True
                    ),
                ),
                ("updated_at", geneva_drive.models.fields.UTCDateTimeField()),
                ("ongoing_key", geneva_drive.models.fields.ongoing_key_field()),
                (
                    "hero_type",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="contenttypes.contenttype",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["hero_type", "hero_id"], name="geneva_workflow_of_hero"),
                    models.Index(fields=["type", "state"], name="geneva_workflow_type_state"),
                    models.Index(fields=["state", "transitioned_at"], name="geneva_workflow_ended"),
                    models.Index(fields=["created_at"], name="geneva_workflow_created"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("ongoing_key",), name="geneva_one_ongoing_workflow")
                ],
                "verbose_name": "workflow",
                "verbose_name_plural": "workflows",
                "permissions": [
                    ("pause_workflow", "Can pause a workflow"),
                    ("resume_workflow", "Can resume a workflow"),
                    ("resume_workflow_at_step", "Can resume a workflow at a chosen step"),
                    ("skip_workflow_step", "Can skip a workflow's step"),
                    ("cancel_workflow", "Can cancel a workflow"),
                    ("signal_workflow", "Can send a signal to a workflow"),
                    ("start_workflow", "Can start a workflow"),
                    ("reschedule_workflow", "Can reschedule a workflow's step"),
                ],
            },
            bases=(geneva_drive.models.verbs.Verbs, models.Model),
        ),
        migrations.CreateModel(
            name="Signal",
            fields=[
                ("id", geneva_drive.models.fields.primary_key()),
                ("name", geneva_drive.models.fields.IdentifierField(max_length=150)),
                (
                    "idempotency_key",
                    geneva_drive.models.fields.IdentifierField(blank=True, max_length=255, null=True),
                ),
                ("state", geneva_drive.models.fields.IdentifierField(default="pending", max_length=20)),
                ("payload", geneva_drive.models.fields.JSONColumn(blank=True, null=True)),
                ("claimed_count", models.IntegerField(db_default=0, default=0)),
                ("consumed_count", models.IntegerField(db_default=0, default=0)),
                ("created_at", geneva_drive.models.fields.UTCDateTimeField()),
                (
                    "claimed_at",
                    geneva_drive.models.fields.UTCDateTimeField(
                        blank=True, help_text="When a step last received it.", null=True
                    ),
                ),
                ("consumed_at", geneva_drive.models.fields.UTCDateTimeField(blank=True, null=True)),
                (
                    "workflow",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="signals",
                        to="geneva_drive.workflow",
                    ),
                ),
            ],
            options={
                "verbose_name": "signal",
                "verbose_name_plural": "signals",
                "indexes": [
                    models.Index(
                        fields=["state", "workflow", "name", "created_at"], name="geneva_signal_unconsumed"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("workflow", "name", "idempotency_key"), name="geneva_one_signal_per_key"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="StepExecution",
            fields=[
                ("id", geneva_drive.models.fields.primary_key()),
                ("step_name", geneva_drive.models.fields.IdentifierField(max_length=150)),
                ("state", geneva_drive.models.fields.IdentifierField(default="scheduled", max_length=20)),
                ("outcome", geneva_drive.models.fields.IdentifierField(blank=True, max_length=20, null=True)),
                ("queue", geneva_drive.models.fields.IdentifierField(max_length=100)),
                ("priority", models.IntegerField(db_default=0, default=0, help_text="Lower runs first.")),
                ("scheduled_for", geneva_drive.models.fields.UTCDateTimeField()),
                ("on_hold", models.BooleanField(db_default=False, default=False)),
                ("started_at", geneva_drive.models.fields.UTCDateTimeField(blank=True, null=True)),
                ("finished_at", geneva_drive.models.fields.UTCDateTimeField(blank=True, null=True)),
                ("attempt_token", models.UUIDField(blank=True, null=True)),
                ("handed_off", models.BooleanField(db_default=False, default=False)),
                ("job_id", models.CharField(blank=True, max_length=255, null=True)),
                ("dispatched_at", geneva_drive.models.fields.UTCDateTimeField(blank=True, null=True)),
                ("error_class", models.CharField(blank=True, max_length=255, null=True)),
                ("error_message", models.TextField(blank=True, null=True)),
                ("error_traceback", models.TextField(blank=True, null=True)),
                ("deferred_since", geneva_drive.models.fields.UTCDateTimeField(blank=True, null=True)),
                ("waiting_since", geneva_drive.models.fields.UTCDateTimeField(blank=True, null=True)),
                ("wait_deadline", geneva_drive.models.fields.UTCDateTimeField(blank=True, null=True)),
                ("cursor", geneva_drive.models.fields.JSONColumn(blank=True, null=True)),
                ("iterations", models.BigIntegerField(db_default=0, default=0)),
                ("iterations_total", models.BigIntegerField(blank=True, null=True)),
                (
                    "crashes",
                    models.IntegerField(
                        db_default=0,
                        default=0,
                        help_text="Consecutive crashes of this step before this attempt.",
                    ),
                ),
                ("metadata", geneva_drive.models.fields.JSONColumn(blank=True, null=True)),
                ("created_at", geneva_drive.models.fields.UTCDateTimeField()),
                ("active_workflow", geneva_drive.models.fields.active_workflow_field()),
                (
                    "continues_from",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="geneva_drive.stepexecution",
                    ),
                ),
                (
                    "process",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="executions",
                        to="geneva_drive.process",
                    ),
                ),
                (
                    "signal",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="executions",
                        to="geneva_drive.signal",
                    ),
                ),
                (
                    "workflow",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="executions",
                        to="geneva_drive.workflow",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["state", "on_hold", "queue", "priority", "scheduled_for"],
                        name="geneva_execution_due",
                    ),
                    models.Index(fields=["state", "process", "started_at"], name="geneva_execution_running"),
                    models.Index(
                        fields=["state", "on_hold", "wait_deadline"], name="geneva_execution_timeout"
                    ),
                    geneva_drive.models.step_execution.NotNullIndex(
                        fields=["error_class"], name="geneva_execution_error"
                    ),
                    geneva_drive.models.step_execution.NotNullIndex(
                        fields=["waiting_since"], name="geneva_execution_waiting"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("active_workflow",), name="geneva_one_active_execution")
                ],
                "verbose_name": "step execution",
                "verbose_name_plural": "step executions",
            },
        ),
        migrations.CreateModel(
            name="OperatorAction",
            fields=[
                ("id", geneva_drive.models.fields.primary_key()),
                ("action", geneva_drive.models.fields.IdentifierField(max_length=30)),
                ("actor", models.CharField(blank=True, default="", max_length=255)),
                ("reason", models.TextField(blank=True, default="")),
                ("before", geneva_drive.models.fields.JSONColumn(blank=True, null=True)),
                ("after", geneva_drive.models.fields.JSONColumn(blank=True, null=True)),
                ("created_at", geneva_drive.models.fields.UTCDateTimeField()),
                (
                    "workflow",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="operator_actions",
                        to="geneva_drive.workflow",
                    ),
                ),
            ],
            options={
                "verbose_name": "operator action",
                "verbose_name_plural": "operator actions",
            },
        ),
    ]
