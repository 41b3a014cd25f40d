"""From the environment to Django's ``DATABASES``."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["DEFAULT_URLS", "ENGINES", "database_settings", "run_directory", "run_name", "url_variable"]

ENGINES = {
    "sqlite": "django.db.backends.sqlite3",
    "postgresql": "django.db.backends.postgresql",
    "mysql": "django.db.backends.mysql",
    "mariadb": "django.db.backends.mysql",
}

DEFAULT_URLS = {
    "postgresql": "postgresql://postgres@127.0.0.1:5432/",
    "mysql": "mysql://root@127.0.0.1:3307/",
    "mariadb": "mariadb://root@127.0.0.1:3306/",
}

ALIASES = ("default", "other")


def url_variable(database: str) -> str:
    """The environment variable that holds the address of ``database``."""
    return f"GENEVA_TEST_{database.upper()}_URL"


def run_directory(environ: MutableMapping[str, str]) -> Path:
    """The temporary folder of this run, the same for every process that the run starts.

    ``tests.conftest`` makes it and removes it.
    """
    return Path(tempfile.gettempdir()) / f"geneva_drive-{run_name(environ)}"


def run_name(environ: MutableMapping[str, str]) -> str:
    """The stem of this run's names. Two runs at once, on one server, must not drop each other's databases."""
    # Noted in the environment, since child processes belong to the same run.
    return environ.setdefault("GENEVA_TEST_NAME", f"geneva_{os.getpid()}")


def database_settings(environ: MutableMapping[str, str]) -> dict[str, dict[str, Any]]:
    """Django's ``DATABASES``: "default", and "other" beside it on the same server.

    Raises ``ValueError`` for a database that this suite does not know.
    """
    database = environ.get("GENEVA_TEST_DATABASE", "sqlite")
    if database not in ENGINES:
        raise ValueError(f"GENEVA_TEST_DATABASE is {database!r}; it must be one of {', '.join(ENGINES)}.")
    name = run_name(environ)
    existing: dict[str, str] = json.loads(environ.get("GENEVA_TEST_NAMES", "{}"))
    described = {}
    for alias in ALIASES:
        stem = name if alias == "default" else f"{name}_{alias}"
        described[alias] = (
            _sqlite(environ, stem) if database == "sqlite" else _server(environ, database, stem)
        )
        if alias in existing:
            described[alias]["NAME"] = existing[alias]
    return described


def _sqlite(environ: MutableMapping[str, str], stem: str) -> dict[str, Any]:
    directory = run_directory(environ)
    return {
        "ENGINE": ENGINES["sqlite"],
        # Used by nothing but commands without a database of their own, such as makemigrations.
        "NAME": ":memory:",
        "OPTIONS": {
            # Seconds that a writer waits for another one.
            "timeout": 20,
            # No test pulls the plug of the machine: without a sync at each commit the suite is faster.
            "init_command": "PRAGMA synchronous = OFF",
        },
        # A file, since threads and real worker processes must see the same tables.
        "TEST": {"NAME": str(directory / f"test_{stem}.sqlite3")},
    }


def _server(environ: MutableMapping[str, str], database: str, stem: str) -> dict[str, Any]:
    url = urlsplit(environ.get(url_variable(database), DEFAULT_URLS[database]))
    described: dict[str, Any] = {
        "ENGINE": ENGINES[database],
        "NAME": stem,
        "HOST": url.hostname or "127.0.0.1",
        "PORT": str(url.port or urlsplit(DEFAULT_URLS[database]).port),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
        "TEST": {"NAME": f"test_{stem}"},
    }
    if database == "postgresql" and environ.get("GENEVA_TEST_PREPARED") == "1":
        described["OPTIONS"] = {"server_side_binding": True, "prepare_threshold": 5}
    if database != "postgresql":
        described["TEST"]["CHARSET"] = "utf8mb4"
        if isolation := environ.get("GENEVA_TEST_ISOLATION"):
            described["OPTIONS"] = {"isolation_level": isolation}
    return described
