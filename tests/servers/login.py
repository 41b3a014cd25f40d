"""Logging in, by the drivers that Django uses too: is the server ours to use, and which one is it exactly?"""

from __future__ import annotations

from contextlib import closing
from urllib.parse import unquote, urlsplit

from tests.servers.processes import CannotStart

__all__ = ["drop_databases", "server_version"]

SECONDS = 5


def server_version(url: str) -> str:
    """The version of a server on which this user may create databases. Raises ``CannotStart``."""
    return _postgresql_version(url) if urlsplit(url).scheme == "postgresql" else _mysql_version(url)


def drop_databases(url: str, names: list[str]) -> None:
    """Drop those of ``names`` that exist, for a run that could not do so itself."""
    if urlsplit(url).scheme == "postgresql":
        import psycopg
        from psycopg import sql

        with psycopg.connect(url, dbname="postgres", connect_timeout=SECONDS, autocommit=True) as connection:
            for name in names:
                statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
                connection.execute(statement)
    else:
        with closing(_mysql(url)) as mysql, closing(mysql.cursor()) as cursor:
            for name in names:
                cursor.execute(f"DROP DATABASE IF EXISTS `{name}`")


def _postgresql_version(url: str) -> str:
    import psycopg

    try:
        with psycopg.connect(url, dbname="postgres", connect_timeout=SECONDS) as connection:
            allowed = connection.execute(
                "SELECT rolsuper OR rolcreatedb FROM pg_roles WHERE rolname = current_user"
            ).fetchone()
            version = str(connection.info.parameter_status("server_version"))
    except psycopg.Error as error:
        raise CannotStart(f"PostgreSQL refuses the log-in: {_first_line(error)}") from error
    if not allowed or not allowed[0]:
        raise CannotStart("this user of PostgreSQL may not create databases")
    return version.split(" ", 1)[0]


def _mysql_version(url: str) -> str:
    import MySQLdb

    try:
        with closing(_mysql(url)) as connection, closing(connection.cursor()) as cursor:
            cursor.execute("SELECT VERSION()")
            version = str(cursor.fetchone()[0])
    except MySQLdb.Error as error:
        raise CannotStart(f"the server refuses the log-in: {_first_line(error)}") from error
    return version.split("-", 1)[0]


def _mysql(url: str):  # type: ignore[no-untyped-def]  # the driver ships no type hints
    import MySQLdb

    address = urlsplit(url)
    return MySQLdb.connect(
        host=address.hostname,
        port=address.port,
        user=unquote(address.username or ""),
        password=unquote(address.password or ""),
        connect_timeout=SECONDS,
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
