"""What the columns of a database really look like, read from its own catalogue."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["column_types", "family", "is_mariadb"]

_INTEGERS = re.compile(r"^(tiny|small|medium|big)?(int|integer|serial)\d*\b|^int\d+$")
_STRINGS = re.compile(r"^(character varying|character|n?(var)?char|bpchar|(tiny|medium|long)?text|citext)\b")

# One statement a database, whatever the number of tables: a migration asks for all models at once.
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
    """Give the real type of every column of those tables that exist.

    Returns
    -------
    dict
        ``{(table, column): type}``, the type in lower case as the database spells it. Tables that
        do not exist, and databases that are none of the four, are left out.
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
        # Not connection.cursor(): the first use of a column must not add a query to the ones
        # that a project's assertNumQueries counts.
        with connection.make_cursor(connection.create_cursor()) as cursor:
            cursor.execute(sql, batch)
            for table, column, sql_type in cursor.fetchall():
                # MySQL's catalogue gives the type as a blob.
                text = sql_type.decode() if isinstance(sql_type, bytes) else sql_type
                found[table, column] = text.lower()
    return found


def is_mariadb(connection: BaseDatabaseWrapper) -> bool:
    """Say whether a connection of Django's MySQL backend is to MariaDB."""
    return bool(getattr(connection, "mysql_is_mariadb", False))


def family(sql_type: str | None) -> str | None:
    """Sort a column type into "integer", "uuid", "string" or None, by its name alone.

    ``char(32)`` and ``char(36)`` count as strings here: whether they hold UUIDs, the field knows.
    """
    if not sql_type:
        return None
    sql_type = sql_type.lower()
    if sql_type == "uuid":
        return "uuid"
    if _INTEGERS.match(sql_type):
        return "integer"
    if _STRINGS.match(sql_type):
        return "string"
    return None
