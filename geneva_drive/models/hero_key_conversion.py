"""Conversion of the hero key column to another type, and the check that every key survives it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from django.contrib.contenttypes.models import ContentType
from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from geneva_drive.exceptions import HeroKeyError
from geneva_drive.models import columns
from geneva_drive.models.fields.hero_key import HeroKeyField, cast_uuid
from geneva_drive.models.workflow import Workflow

if TYPE_CHECKING:
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor


_BATCH = 20_000  # rows
_SHOWN = 20  # misfits kept for the message; all are counted
_DECIMAL = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)


@dataclass(frozen=True)
class Misfit:
    """A workflow whose hero key another kind of column cannot hold."""

    workflow: str
    hero: str
    reason: str


@dataclass
class Examination:
    """The result of the check: how many rows were read, and which ones prevent the conversion."""

    source: str
    target: str
    rows: int = 0
    misfit_count: int = 0
    misfits: list[Misfit] = field(default_factory=list)


def examine(using: str, target: str, progress: Callable[[int, int], None] | None = None) -> Examination:
    """Check every row with a hero. Changes nothing.

    Parameters
    ----------
    target
        "bigint", "uuid" or "string".
    progress
        Called after each batch with the number of rows read and the total.
    """
    connection = connections[using]
    result = Examination(columns.hero_key_kind(using), target)
    with_hero = Workflow.objects.using(using).filter(hero_id__isnull=False)
    total = with_hero.count()
    if target == "string":
        result.rows = total  # integers and UUIDs become the text that a string column has for them
        return result

    @cache
    def model(content_type_id: int | None) -> tuple[str, str | None]:
        return _label_and_obstacle(content_type_id, target, connection)

    for batch in with_hero.pages("hero_type_id", "hero_id", size=_BATCH):
        result.rows += len(batch)
        for pk, content_type_id, key in batch:
            label, obstacle = model(content_type_id)
            reason = _obstacle(key, target, connection) or obstacle
            if reason:
                result.misfit_count += 1
                if len(result.misfits) < _SHOWN:
                    result.misfits.append(Misfit(str(pk), f"{label} {key!r}", reason))
        if progress is not None:
            progress(result.rows, total)
    return result


def _obstacle(key: Any, target: str, connection: BaseDatabaseWrapper) -> str | None:
    """Return why a key does not survive, or None if it would convert back to exactly the same text.

    Otherwise two heroes may become one: "7" and "07", or a UUID in upper and in lower case.
    """
    if not isinstance(key, str):
        return f"is not a {target}"  # an integer for a UUID, or a UUID for an integer
    if target == "bigint":
        fits = _DECIMAL.fullmatch(key) is not None and -(2**63) <= int(key) < 2**63
    else:
        try:
            fits = cast_uuid(uuid.UUID(key), connection) == key
        except ValueError:
            fits = False
    return None if fits else f"is not the text of a {target}"


def _label_and_obstacle(
    content_type_id: int | None, target: str, connection: BaseDatabaseWrapper
) -> tuple[str, str | None]:
    """Return the label of a hero's model, and why its keys do not survive: text is not found by an integer."""
    if content_type_id is None:
        return "a hero without a type", None
    content_type = ContentType.objects.db_manager(connection.alias).get_for_id(content_type_id)
    label = f"{content_type.app_label}.{content_type.model}"
    model = content_type.model_class()
    if model is None:
        return label, None  # not installed any more: only the value can be checked
    family = columns.field_family(model._meta.pk, connection)
    fits = family == columns.FAMILY_OF_KIND[target]
    return label, None if fits else f"belongs to a model with keys of another type ({family or 'unknown'})"


def convert(using: str, target: str, progress: Callable[[int, int], None] | None = None) -> Examination:
    """Change the column's type, with the whole table locked.

    Processes cache the kind of the column: restart workers and servers afterwards.

    Raises
    ------
    HeroKeyError
        A row prevents it. Nothing was changed.
    """
    connection = connections[using]
    source = columns.hero_key_kind(using)
    with _locked(connection), connection.schema_editor() as editor:
        if connection.vendor == "sqlite":
            # A write at the start of the transaction locks out other writers.
            editor.execute(f"UPDATE {editor.quote_name(columns.WORKFLOW_TABLE)} SET type = type WHERE 1 = 0")
        elif connection.vendor == "postgresql":
            editor.execute(f"LOCK TABLE {editor.quote_name(columns.WORKFLOW_TABLE)} IN ACCESS EXCLUSIVE MODE")
        examination = examine(using, target, progress)
        if examination.misfit_count:
            raise HeroKeyError(
                f"{examination.misfit_count} of {examination.rows} hero keys cannot be kept in a conversion of the "
                f"column from {source} to {target}."
            )
        _alter(editor, source, target)
    columns.reset(using)
    return examination


@contextmanager
def _locked(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """On MySQL and MariaDB, lock the table from the check until the ALTER."""
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
    # There is no cast between integers and UUIDs, but each has one to text. (Every row is NULL then.)
    route = [source, target] if "string" in (source, target) else [source, "string", target]
    for before, after in pairwise(route):
        # With explicit kinds, since alter_field does nothing if the fields' arguments are equal.
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
