"""Indexes for the lists of operators. None is on a column that a hand-over from step to step writes."""

from django.db import migrations, models

import geneva_drive.models.step_execution


class Migration(migrations.Migration):
    dependencies = [
        ("geneva_drive", "0002_signals"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="workflow",
            index=models.Index(fields=["created_at"], name="geneva_workflow_created"),
        ),
        migrations.AddIndex(
            model_name="stepexecution",
            index=geneva_drive.models.step_execution.NotNullIndex(
                fields=["error_class"], name="geneva_execution_error"
            ),
        ),
        migrations.AddIndex(
            model_name="stepexecution",
            index=geneva_drive.models.step_execution.NotNullIndex(
                fields=["waiting_since"], name="geneva_execution_parked"
            ),
        ),
    ]
