"""Changing the type of the hero key column, without losing a row or making two heroes one."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

from django.contrib.contenttypes.models import ContentType
from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from geneva_drive.exceptions import HeroKeyError
from geneva_drive.models import columns
from geneva_drive.models.hero_key import HeroKeyField
from geneva_drive.models.hero_key_examination import Examination, examine
from geneva_drive.models.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.db.backends.base.schema import BaseDatabaseSchemaEditor

__all__ = ["convert"]


def convert(using: str, target: str, progress: Callable[[int, int], None] | None = None) -> Examination:
    """Change the column's type, under a lock of the whole table.

    Processes remember the kind of the column: restart workers and servers afterwards.

    Raises
    ------
    HeroKeyError
        A row forbids it. Nothing was changed.
    """
    connection = connections[using]
    source = columns.hero_key_kind(using)
    with _locked(connection), connection.schema_editor() as editor:
        if connection.vendor == "sqlite":
            # The transaction begins with a write, so that nobody else writes before it ends.
            editor.execute(f"UPDATE {editor.quote_name(columns.WORKFLOW_TABLE)} SET type = type WHERE 1 = 0")
        elif connection.vendor == "postgresql":
            editor.execute(f"LOCK TABLE {editor.quote_name(columns.WORKFLOW_TABLE)} IN ACCESS EXCLUSIVE MODE")
        examination = examine(using, target, progress)
        if examination.misfit_count:
            raise HeroKeyError(
                f"{examination.misfit_count} of {examination.rows} heroes do not survive a conversion of the "
                f"column from {source} to {target}."
            )
        _alter(editor, source, target)
    columns.reset(using)
    return examination


@contextmanager
def _locked(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """On MySQL and MariaDB: keep the table from changing between the examination and the ALTER."""
    if connection.vendor != "mysql":
        yield
        return
    quote = connection.ops.quote_name
    with connection.cursor() as cursor:
        cursor.execute(
            f"LOCK TABLES {quote(columns.WORKFLOW_TABLE)} WRITE, {quote(ContentType._meta.db_table)} READ"
        )
        try:
            yield
        finally:
            cursor.execute("UNLOCK TABLES")


def _alter(editor: BaseDatabaseSchemaEditor, source: str, target: str) -> None:
    generated = [f for f in Workflow._meta.local_fields if isinstance(f, models.GeneratedField)]
    names = {f.name for f in generated}
    constraints = [
        constraint
        for constraint in Workflow._meta.constraints
        if isinstance(constraint, models.UniqueConstraint) and names & set(constraint.fields)
    ]
    # PostgreSQL refuses to alter a column that a generated column uses; the others do not.
    detach = editor.connection.vendor == "postgresql"
    if detach:
        for constraint in constraints:
            editor.remove_constraint(Workflow, constraint)
        for column in generated:
            editor.remove_field(Workflow, column)
    # Integers and UUIDs have no cast to each other; every row is NULL then, and text has both.
    route = [source, target] if "string" in (source, target) else [source, "string", target]
    for before, after in pairwise(route):
        # The kinds are spelled out: alter_field compares the fields' arguments, and does nothing if equal.
        editor.alter_field(Workflow, _field(before), _field(after))
    if detach:
        for column in generated:
            editor.add_field(Workflow, column)
        for constraint in constraints:
            editor.add_constraint(Workflow, constraint)


def _field(kind: str) -> HeroKeyField:
    original = Workflow._meta.get_field("hero_id")
    assert isinstance(original, HeroKeyField)
    copy = HeroKeyField(kind=kind, null=original.null, blank=original.blank)
    copy.set_attributes_from_name(columns.HERO_KEY_COLUMN)
    copy.model = Workflow
    return copy
