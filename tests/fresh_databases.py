"""Empty databases on the server of this run, for projects that a test runs as processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.db import connections

__all__ = ["fresh_database", "url"]


@contextlib.contextmanager
def fresh_database(
    suffix: str, folder: Path, *, template: dict[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Create an empty database, yield Django's description of it, and drop it.

    With ``template``, another one that this function described and that nobody is connected to, it is a copy
    of that. On SQLite it is a file in ``folder``, which the caller copies. The caller must be allowed to use
    the database. MySQL and MariaDB know no templates.
    """
    connection = connections["default"]
    given = connection.settings_dict
    described = {key: given[key] for key in ("ENGINE", "USER", "PASSWORD", "HOST", "PORT")}
    if connection.vendor == "sqlite":
        yield {**described, "NAME": str(folder / f"{suffix}.sqlite3"), "OPTIONS": {"timeout": 20}}
        return
    name = f"{given['NAME']}_{suffix}"
    with _server() as cursor:
        _drop(cursor, name)
        how = " CHARACTER SET utf8mb4" if connection.vendor == "mysql" else ""
        if template is not None:
            assert connection.vendor == "postgresql", "only PostgreSQL has templates"
            how = f" TEMPLATE {connection.ops.quote_name(template['NAME'])}"
        cursor.execute(f"CREATE DATABASE {connection.ops.quote_name(name)}{how}")
    try:
        yield {**described, "NAME": name, "TEST": {**given["TEST"], "NAME": f"test_{name}", "MIRROR": None}}
    finally:
        with _server() as cursor:
            _drop(cursor, name)


def url(described: dict[str, Any]) -> str:
    """The same database as an address, as the example project takes it."""
    kind = described["ENGINE"].rpartition(".")[2].removesuffix("3")
    if kind == "sqlite":
        return f"sqlite:///{quote(described['NAME'])}"
    user = ":".join(quote(described[key], safe="") for key in ("USER", "PASSWORD") if described[key])
    return f"{kind}://{user}@{described['HOST']}:{described['PORT']}/{described['NAME']}"


def _server() -> Any:
    # How Django's own test runner gets at a server without one of its databases.
    return connections["default"]._nodb_cursor()


def _drop(cursor: Any, name: str) -> None:
    connection = connections["default"]
    # A process that a test killed may still be connected.
    force = " WITH (FORCE)" if connection.vendor == "postgresql" else ""
    cursor.execute(f"DROP DATABASE IF EXISTS {connection.ops.quote_name(name)}{force}")
