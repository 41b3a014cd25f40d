"""Databases created by an older release."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, migrations, models
from django.db.models import NOT_PROVIDED

import geneva_drive.migrations
from geneva_drive.models import StepExecution, columns

FIRST = "0001_initial"


def later_migrations() -> list[Any]:
    names = sorted(each.name for each in pkgutil.iter_modules(geneva_drive.migrations.__path__))
    assert names[0] == FIRST
    modules = [importlib.import_module(f"geneva_drive.migrations.{name}") for name in names[1:]]
    return [module.Migration for module in modules]


def harm_to_old_pods(operation: Any) -> str | None:
    """Return how an operation breaks the previous release, which still reads and writes; None if it does not."""
    forbidden = (
        migrations.RemoveField,
        migrations.RenameField,
        migrations.DeleteModel,
        migrations.RenameModel,
    )
    if isinstance(operation, forbidden):
        return f"{type(operation).__name__} takes away what they use"
    if isinstance(operation, migrations.AddField):
        # Old code does not name new columns.
        field = operation.field
        if not field.null and field.db_default is NOT_PROVIDED:
            return f"{operation.model_name}.{operation.name} is neither nullable nor has a default in the database"
    return None


def test_no_later_migration_breaks_the_previous_release() -> None:
    for migration in later_migrations():
        for operation in migration.operations:
            assert harm_to_old_pods(operation) is None, (migration, operation)


@pytest.mark.parametrize(
    ("operation", "harmful"),
    [
        (migrations.AddField("workflow", "note", models.TextField()), True),
        (migrations.AddField("workflow", "note", models.TextField(default="")), True),
        (migrations.AddField("workflow", "note", models.TextField(null=True)), False),
        (migrations.AddField("workflow", "note", models.TextField(db_default="")), False),
        (migrations.RemoveField("workflow", "metadata"), True),
        (migrations.RenameField("workflow", "metadata", "data"), True),
        (migrations.DeleteModel("signal"), True),
        (migrations.RenameModel("signal", "event"), True),
    ],
    ids=str,
)
def test_an_operation_that_would_break_it_is_found(operation: Any, harmful: bool) -> None:
    assert (harm_to_old_pods(operation) is not None) is harmful


def schema(alias: str) -> dict[str, Any]:
    """Describe the tables as the server does: columns with their types, indexes and constraints."""
    connection = connections[alias]
    described: dict[str, Any] = {}
    with connection.cursor() as cursor:
        tables = sorted(
            name for name in connection.introspection.table_names(cursor) if name.startswith("geneva_drive_")
        )
        for table in tables:
            listed = connection.introspection.get_table_description(cursor, table)
            # Not its display size, which on MySQL depends on the existing rows.
            described[table] = {
                each.name: (each.type_code, each.internal_size, each.precision, each.null_ok, each.default)
                for each in listed
            }
            constraints = connection.introspection.get_constraints(cursor, table)
            described[f"{table} constraints"] = sorted(
                (sorted(each["columns"] or []), each["unique"], each["index"], each["check"])
                for each in constraints.values()
            )
    return described


def migrate(target: str | None) -> None:
    arguments = ["geneva_drive"] if target is None else ["geneva_drive", target]
    call_command("migrate", *arguments, database="other", verbosity=0)
    columns.reset("other")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_an_upgraded_database_keeps_its_rows_and_is_the_same_as_a_fresh_one() -> None:
    try:
        migrate("zero")
        migrate(FIRST)
        with connections["other"].cursor() as cursor:
            # As the first release writes it, without later columns.
            cursor.execute(
                "INSERT INTO geneva_drive_workflow (type, state, allow_multiple, created_at, updated_at) "
                "VALUES ('testapp.Heroless', 'ready', %s, '2026-01-01 00:00:00', '2026-01-01 00:00:00')",
                [False],
            )
        migrate(None)

        assert schema("other") == schema("default")
        with connections["other"].cursor() as cursor:
            cursor.execute("SELECT type, state FROM geneva_drive_workflow")
            assert list(cursor.fetchall()) == [("testapp.Heroless", "ready")]
            # And as old processes still write it while the new release is rolled out.
            cursor.execute(
                "INSERT INTO geneva_drive_stepexecution (workflow_id, step_name, state, queue, priority, "
                "scheduled_for, on_hold, handed_off, iterations, crashes, created_at) "
                "SELECT id, 'first', 'scheduled', 'default', 0, created_at, %s, %s, 0, 0, created_at "
                "FROM geneva_drive_workflow",
                [False, False],
            )
        (execution,) = StepExecution.objects.using("other").all()
        assert (execution.step_name, execution.active_workflow) == ("first", execution.workflow_id)
    finally:
        migrate("zero")
        migrate(None)
