"""Databases that were made by an older release."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, migrations
from django.db.models import NOT_PROVIDED

import geneva_drive.migrations
from geneva_drive.models import StepExecution, columns

FIRST = "0001_initial"


def later_migrations() -> list[Any]:
    names = sorted(each.name for each in pkgutil.iter_modules(geneva_drive.migrations.__path__))
    assert names[0] == FIRST
    modules = [importlib.import_module(f"geneva_drive.migrations.{name}") for name in names[1:]]
    return [module.Migration for module in modules]


def test_pods_of_the_release_before_can_write_to_the_tables_of_the_new_one() -> None:
    """Old code names no new column: each must be nullable or have a default in the database itself."""
    added = [
        operation
        for migration in later_migrations()
        for operation in migration.operations
        if isinstance(operation, migrations.AddField)
    ]
    assert added, "a release added a column; this test looks at nothing"
    for operation in added:
        field = operation.field
        assert field.null or field.db_default is not NOT_PROVIDED, f"{operation.model_name}.{operation.name}"


def test_no_later_release_takes_away_or_narrows_what_old_pods_use() -> None:
    forbidden = (
        migrations.RemoveField,
        migrations.RenameField,
        migrations.DeleteModel,
        migrations.RenameModel,
    )
    for migration in later_migrations():
        for operation in migration.operations:
            assert not isinstance(operation, forbidden), (migration, operation)


def schema(alias: str) -> dict[str, Any]:
    """Describe our tables as the server does: columns with their types, and everything that is on them."""
    connection = connections[alias]
    described: dict[str, Any] = {}
    with connection.cursor() as cursor:
        tables = sorted(
            name for name in connection.introspection.table_names(cursor) if name.startswith("geneva_drive_")
        )
        for table in tables:
            listed = connection.introspection.get_table_description(cursor, table)
            # Not its display size, which on MySQL is that of the rows that are there.
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
            # As the first release writes it: no column that came later is named.
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
            # And as old pods go on to write it while the new release is rolled out.
            cursor.execute(
                "INSERT INTO geneva_drive_stepexecution (workflow_id, step_name, state, queue, priority, "
                "scheduled_for, held, handed_over, iterations, crashes, created_at) "
                "SELECT id, 'first', 'scheduled', 'default', 0, created_at, %s, %s, 0, 0, created_at "
                "FROM geneva_drive_workflow",
                [False, False],
            )
        (execution,) = StepExecution.objects.using("other").all()
        assert (execution.step_name, execution.active_workflow) == ("first", execution.workflow_id)
    finally:
        migrate("zero")
        migrate(None)
