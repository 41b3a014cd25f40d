"""Emptying the tables after a transactional test, in a fraction of the time that ``flush`` takes.

``flush`` empties every table, and then writes the same content types and permissions again, as receivers of
``post_migrate``. This looks which tables have rows at all, empties those, and leaves alone the rows that a
``flush`` has left before. Where some of them are missing or changed, Django's own ``flush`` is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from django.contrib.auth.management import create_permissions
from django.contrib.contenttypes.management import create_contenttypes
from django.core.management.color import no_style
from django.core.management.commands import flush
from django.core.management.sql import emit_post_migrate_signal
from django.db import connections, transaction
from django.db.models.signals import post_migrate

__all__ = ["quick_flush"]

Rows = dict[str, list[tuple[Any, ...]]]

_after_a_flush: dict[str, Rows] = {}
"""For each database, by its name: the rows that ``flush`` left, for each table that has some."""


@contextmanager
def quick_flush() -> Iterator[None]:
    """Let ``flush`` be quick inside of this."""
    whole = flush.Command.handle

    def handle(self: flush.Command, **options: Any) -> None:
        alias = options["database"]
        is_plain = not (
            options["interactive"]
            or options.get("reset_sequences", True)
            or options.get("allow_cascade")
            or options.get("inhibit_post_migrate")
        )
        name = str(connections[alias].settings_dict["NAME"])
        if is_plain and name in _after_a_flush and _empty(alias, _after_a_flush[name]):
            return
        whole(self, **options)
        if is_plain:
            _after_a_flush[name] = {table: _rows(alias, table) for table in _with_rows(alias)}

    with mock.patch.object(flush.Command, "handle", handle):
        yield


def _empty(alias: str, left: Rows) -> bool:
    """Make the tables as a flush had left them. Returns whether that was possible by deleting alone."""
    from django.contrib.contenttypes.models import ContentType  # asks for settings

    connection = connections[alias]
    quote = connection.ops.quote_name
    with_rows = _with_rows(alias)
    added: dict[str, list[tuple[Any, ...]]] = {}
    for table, rows in left.items():
        now = _rows(alias, table) if table in with_rows else []
        if not {*rows} <= {*now}:
            return False
        added[table] = [row for row in now if row not in {*rows}]
    statements = connection.ops.sql_flush(no_style(), [table for table in with_rows if table not in left])
    # Content types and the permissions that refer to them may go in any order.
    with (
        connection.constraint_checks_disabled(),
        transaction.atomic(using=alias),
        connection.cursor() as cursor,
    ):
        for table, rows in added.items():
            for row in rows:
                cursor.execute(f"DELETE FROM {quote(table)} WHERE id = %s", [row[0]])
        # Last: on MySQL these end with putting the checks on again.
        for statement in statements:
            cursor.execute(statement)
    ContentType.objects.clear_cache()
    with _djangos_own_receivers_left_out():
        emit_post_migrate_signal(verbosity=0, interactive=False, db=alias)
    return True


@contextmanager
def _djangos_own_receivers_left_out() -> Iterator[None]:
    """Others than those that write content types and permissions hear of a flush as ever."""
    uid = "django.contrib.auth.management.create_permissions"
    assert post_migrate.disconnect(create_contenttypes)
    assert post_migrate.disconnect(dispatch_uid=uid)
    try:
        yield
    finally:
        post_migrate.connect(create_contenttypes)
        post_migrate.connect(create_permissions, dispatch_uid=uid)


def _with_rows(alias: str) -> list[str]:
    connection = connections[alias]
    quote = connection.ops.quote_name
    # As ``flush`` finds them.
    tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
    if not tables:
        return []
    questions = [
        f"SELECT '{table}' FROM (SELECT 1 AS one) AS one WHERE EXISTS (SELECT 1 FROM {quote(table)})"
        for table in tables
    ]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(questions))
        return [str(table) for (table,) in cursor.fetchall()]


def _rows(alias: str, table: str) -> list[tuple[Any, ...]]:
    connection = connections[alias]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
        columns = [column[0] for column in cursor.description]
        key = columns.index("id")
        # The key first, whatever the order of the columns.
        return sorted((row[key], *row) for row in cursor.fetchall())
