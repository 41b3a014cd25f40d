"""Are the tables there, with the columns, constraints and indexes that this code declares?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections

from geneva_drive.doctor.finding import Finding
from geneva_drive.models.records import OperatorAction, Process, Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["MODELS", "missing_tables", "tables"]

MODELS = (Workflow, StepExecution, Signal, Process, OperatorAction)


def missing_tables(connection: BaseDatabaseWrapper) -> list[str]:
    """Return those of our tables that are not there, in the models' order."""
    with connection.cursor() as cursor:
        existing = set(connection.introspection.table_names(cursor))
    return [model._meta.db_table for model in MODELS if model._meta.db_table not in existing]


def tables(alias: str) -> Iterator[Finding]:
    connection = connections[alias]
    lost_tables = missing_tables(connection)
    lost_columns: list[str] = []
    with connection.cursor() as cursor:
        for model in MODELS:
            table = model._meta.db_table
            if table in lost_tables:
                continue
            real = {column.name for column in connection.introspection.get_table_description(cursor, table)}
            # SQLite lists no generated columns there; what is unique on them is looked at below.
            stored = [each for each in model._meta.concrete_fields if not getattr(each, "generated", False)]
            lost_columns += [
                f"{table}.{name}" for name in sorted({str(each.column) for each in stored} - real)
            ]
            names = set(connection.introspection.get_constraints(cursor, table))
            wanted = [str(each.name) for each in (*model._meta.constraints, *model._meta.indexes)]
            for missing in sorted(set(wanted) - names):
                yield Finding(
                    "error",
                    "constraints",
                    f"{missing} on {table} is missing: a guarantee or a fast look-up of the library is not held.",
                    "Make it again, for example from sqlmigrate's output.",
                )
    if lost_tables:
        yield Finding(
            "error", "tables", f"{_missing('table', lost_tables)}.", f"Run migrate --database {alias}."
        )
    if lost_columns:
        yield Finding(
            "error",
            "tables",
            f"{_missing('column', lost_columns)}.",
            f"Run migrate --database {alias}: the code is newer than the tables.",
        )


def _missing(what: str, names: list[str]) -> str:
    if len(names) == 1:
        return f"The {what} {names[0]} is missing"
    return f"The {what}s {', '.join(names)} are missing"
