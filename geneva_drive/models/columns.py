"""The real types of columns, read from the database's catalogue, and what the hero key column is or would be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, models, router
from django.db.backends.base.base import BaseDatabaseWrapper

from geneva_drive.conf import settings

_INTEGERS = re.compile(r"^(tiny|small|medium|big)?(int|integer|serial)\d*\b|^int\d+$")
_STRINGS = re.compile(r"^(character varying|character|n?(var)?char|bpchar|(tiny|medium|long)?text|citext)\b")

# One query for any number of tables: a migration needs all models at once.
_POSTGRESQL = """
    SELECT c.relname, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)
    FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
    WHERE c.relname IN ({tables}) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
      AND pg_catalog.pg_table_is_visible(c.oid) AND a.attnum > 0 AND NOT a.attisdropped
"""
_MYSQL = """
    SELECT table_name, column_name, column_type
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name IN ({tables})
"""
# table_xinfo, because table_info leaves generated columns out.
_SQLITE = """
    SELECT m.name, x.name, x.type
    FROM sqlite_master m, pragma_table_xinfo(m.name) x
    WHERE m.type IN ('table', 'view') AND m.name IN ({tables})
"""
_STATEMENTS = {"postgresql": _POSTGRESQL, "mysql": _MYSQL, "sqlite": _SQLITE}
_BATCH = 500  # parameters in one statement; older SQLite allows 999


def column_types(connection: BaseDatabaseWrapper, tables: Iterable[str]) -> dict[tuple[str, str], str]:
    """Return ``{(table, column): type}`` for every column of the tables that exist.

    The type is in lower case, as the database spells it. A database of another vendor gives nothing.
    """
    statement = _STATEMENTS.get(connection.vendor)
    names = list(dict.fromkeys(tables))
    found: dict[tuple[str, str], str] = {}
    if statement is None:
        return found
    connection.ensure_connection()
    for start in range(0, len(names), _BATCH):
        batch = names[start : start + _BATCH]
        sql = statement.format(tables=", ".join(["%s"] * len(batch)))
        # Not connection.cursor(): a project's assertNumQueries must not count this query.
        with connection.make_cursor(connection.create_cursor()) as cursor:
            cursor.execute(sql, batch)
            for table, column, sql_type in cursor.fetchall():
                # MySQL returns the type as bytes.
                text = sql_type.decode() if isinstance(sql_type, bytes) else sql_type
                found[table, column] = text.lower()
    return found


def is_mariadb(connection: BaseDatabaseWrapper) -> bool:
    """Whether a connection of Django's MySQL backend is to MariaDB."""
    return bool(getattr(connection, "mysql_is_mariadb", False))


def family(sql_type: str | None) -> str | None:
    """Return "integer", "uuid", "string" or None for a column type, by its name.

    ``char(32)`` and ``char(36)`` are strings here: only the field knows whether they hold UUIDs.
    """
    sql_type = (sql_type or "").lower()
    if sql_type == "uuid":
        return "uuid"
    if _INTEGERS.match(sql_type):
        return "integer"
    if _STRINGS.match(sql_type):
        return "string"
    return None


KINDS = ("bigint", "uuid", "string")

STRING_LENGTH = 255
"""Characters of a hero key in a string column.

The width limit of a unique ``CharField`` on MySQL and MariaDB. At four bytes a character that is 1020 bytes of
an index key, and 1672 with the type and the content type in front, of 3072 allowed.
"""

FAMILY_OF_KIND = {"bigint": "integer", "uuid": "uuid", "string": "string"}
"""The kind of column -> the family of keys whose type it has."""

WORKFLOW_TABLE = "geneva_drive_workflow"
HERO_KEY_COLUMN = "hero_id"

_real: dict[tuple[str, str, str], dict[str, str]] = {}


def reset(alias: str | None = None) -> None:
    """Drop the cache of column types of one database, or of all. Needed after an ALTER TABLE."""
    for key in list(_real):
        if alias is None or key[0] == alias:
            _real.pop(key, None)


def _real_type(connection: BaseDatabaseWrapper, table: str, column: str) -> str | None:
    # The database's name is part of the key, because the test runner changes the name behind an alias.
    key = (connection.alias, str(connection.settings_dict["NAME"]), table)
    if column not in _real.get(key, ()):
        found = column_types(connection, [table])
        if not found:
            return None  # not cached: the table may be created at any time
        _real[key] = {name: sql_type for (_, name), sql_type in found.items()}
    return _real[key].get(column)


@dataclass(frozen=True)
class HeroColumn:
    """A hero key column: its kind ("bigint", "uuid", "string"), and its type if it exists."""

    kind: str
    sql_type: str | None = None

    @property
    def length(self) -> int | None:
        """The most characters of a string column. None: no limit."""
        if self.sql_type is None:
            return STRING_LENGTH
        width = re.search(r"\((\d+)\)", self.sql_type)
        return int(width[1]) if width else None


def decide_hero_key(*, uuids: int, strings: int, integers: int) -> str:
    """Decide the kind of the hero key column from the numbers of models with each kind of key.

    Returns "uuid" if UUIDs outnumber all others together; "string" if UUIDs and strings together outnumber
    integers; else "bigint".
    """
    if uuids > strings + integers:
        return "uuid"
    if uuids + strings > integers:
        return "string"
    return "bigint"


@dataclass(frozen=True)
class ModelKey:
    """The key of one installed model.

    ``family`` is "uuid", "string", "integer", or None for a key that no hero key column can hold.
    ``source`` says where the type comes from: the existing "column", or the declared "field".
    """

    label: str
    family: str | None
    sql_type: str
    source: str


@dataclass(frozen=True)
class HeroKeyCount:
    """How many installed models have each kind of key, and the resulting decision."""

    uuids: int = 0
    strings: int = 0
    integers: int = 0
    models: list[ModelKey] = field(default_factory=list)

    @property
    def decision(self) -> str:
        return decide_hero_key(uuids=self.uuids, strings=self.strings, integers=self.integers)


def _countable_models(using: str) -> Iterator[type[models.Model]]:
    try:
        user_model = get_user_model()
    except ImproperlyConfigured:  # a project without django.contrib.auth
        user_model = None
    for model in apps.get_models():
        meta = model._meta
        if meta.proxy or not meta.managed or meta.swapped or meta.app_label == "geneva_drive":
            continue
        # Sessions, permissions and the like are never heroes, and django_session has a varchar key.
        config = apps.get_app_config(meta.app_label)
        if config.name.startswith("django.") and model is not user_model:
            continue
        if router.allow_migrate_model(using, model):
            yield model


def field_family(field: models.Field[Any, Any], connection: BaseDatabaseWrapper) -> str | None:
    """Return "integer", "uuid", "string" or None for the values that a field holds."""
    while getattr(field, "remote_field", None):  # a foreign key has the type of its target
        field = field.target_field  # type: ignore[attr-defined]
    # In a database without a uuid type the column type does not say that it holds UUIDs.
    if isinstance(field, models.UUIDField):
        return "uuid"
    return family(field.db_type(connection))


def _model_key(model: type[models.Model], using: str, real: dict[tuple[str, str], str]) -> ModelKey:
    connection = connections[using]
    key = model._meta.pk
    sql_type = real.get((model._meta.db_table, key.column or ""))
    declared = field_family(key, connection)
    if sql_type is None:
        return ModelKey(model._meta.label, declared, key.db_type(connection) or "", "field")
    found = family(sql_type)
    # A UUIDField reads char(32), char(36), varchar(36) and binary(16) as UUIDs.
    if declared == "uuid" and found != "integer":
        found = "uuid"
    return ModelKey(model._meta.label, found, sql_type, "column")


def count_hero_keys(using: str) -> HeroKeyCount:
    """Count the kinds of keys of the installed models in that database.

    The real column counts where the table exists, else the declared field: the first migration of this package
    may run before the project's tables are created.
    """
    installed = list(_countable_models(using))
    real = column_types(connections[using], [m._meta.db_table for m in installed])
    keys = sorted((_model_key(model, using, real) for model in installed), key=lambda key: key.label)
    families = [key.family for key in keys]
    return HeroKeyCount(families.count("uuid"), families.count("string"), families.count("integer"), keys)


def declared_kind(using: str) -> str:
    """Return the kind that a hero key column would get now, by the setting or the count."""
    kind = settings.HERO_KEY_TYPE
    if kind == "auto":
        return count_hero_keys(using).decision
    if kind not in KINDS:
        raise ImproperlyConfigured(
            f"GENEVA_DRIVE['HERO_KEY_TYPE'] is {kind!r}. Use 'auto', 'bigint', 'uuid' or 'string'."
        )
    return kind


def real_hero_column(
    connection: BaseDatabaseWrapper, table: str = WORKFLOW_TABLE, column: str = HERO_KEY_COLUMN
) -> HeroColumn | None:
    """Return the hero key column as it is in the database, or None before the table is created."""
    sql_type = _real_type(connection, table, column)
    if sql_type is None:
        return None
    kind = family(sql_type)
    if kind == "integer":
        return HeroColumn("bigint", sql_type)
    if kind == "uuid" or re.match(r"(char|character)\((32|36)\)", sql_type):
        return HeroColumn("uuid", sql_type)
    return HeroColumn("string", sql_type)


def hero_column(
    connection: BaseDatabaseWrapper, table: str = WORKFLOW_TABLE, column: str = HERO_KEY_COLUMN
) -> HeroColumn:
    """Return the hero key column that exists, else the one that would be created now.

    A missing table may be SQLite's temporary copy in an ALTER TABLE: then the workflow table decides.
    """
    return (
        real_hero_column(connection, table, column)
        or real_hero_column(connection)
        or HeroColumn(declared_kind(connection.alias))
    )


def hero_key_kind(using: str) -> str:
    """Return "bigint", "uuid" or "string" for the hero key column of that database."""
    return hero_column(connections[using]).kind


def key_kind(connection: BaseDatabaseWrapper, table: str, column: str) -> str | None:
    """Return "bigint" or "uuid" for the primary key of one of this package's tables, None before it exists."""
    sql_type = _real_type(connection, table, column)
    if sql_type is None:
        return None
    return "bigint" if family(sql_type) == "integer" else "uuid"


def json_storage(connection: BaseDatabaseWrapper, table: str, column: str) -> str:
    """Return "jsonb", "json" or "text" for a JSON column; before it exists, what Django would create.

    PostgreSQL's driver returns "json" parsed, MySQL's returns it as text.
    """
    sql_type = _real_type(connection, table, column)
    if sql_type is None:
        if connection.vendor == "postgresql":
            return "jsonb"
        return "json" if connection.vendor == "mysql" and not is_mariadb(connection) else "text"
    return sql_type if sql_type in ("json", "jsonb") else "text"
