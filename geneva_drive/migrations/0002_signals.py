"""Signals, and the executions that wait for them."""

import django.db.models.deletion
from django.db import migrations, models

import geneva_drive.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("geneva_drive", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Signal",
            fields=[
                ("id", geneva_drive.models.fields.primary_key()),
                ("name", geneva_drive.models.fields.IdentifierField(max_length=150)),
                (
                    "idempotency_key",
                    geneva_drive.models.fields.IdentifierField(blank=True, max_length=255, null=True),
                ),
                (
                    "state",
                    geneva_drive.models.fields.IdentifierField(
                        choices=[("pending", "pending"), ("claimed", "claimed"), ("consumed", "consumed")],
                        default="pending",
                        max_length=20,
                    ),
                ),
                ("payload", geneva_drive.models.fields.JSONColumn(blank=True, null=True)),
                ("claimed_count", models.IntegerField(db_default=0, default=0)),
                ("consumed_count", models.IntegerField(db_default=0, default=0)),
                ("created_at", geneva_drive.models.fields.UTCDateTimeField()),
                (
                    "claimed_at",
                    geneva_drive.models.fields.UTCDateTimeField(
                        blank=True, help_text="When a step last got it.", null=True
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
        migrations.AddField(
            model_name="stepexecution",
            name="signal",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="executions",
                to="geneva_drive.signal",
            ),
        ),
        migrations.AddIndex(
            model_name="stepexecution",
            index=models.Index(fields=["state", "held", "wait_deadline"], name="geneva_execution_timeout"),
        ),
    ]
