"""Convert a database URL to Django settings."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["from_url"]

_ENGINES = {
    "sqlite": "django.db.backends.sqlite3",
    "postgresql": "django.db.backends.postgresql",
    "mysql": "django.db.backends.mysql",
    "mariadb": "django.db.backends.mysql",
}


def from_url(text: str) -> dict[str, Any]:
    """Return an entry for ``DATABASES``. Raises ValueError if the URL has an unknown scheme."""
    url = urlsplit(text)
    if url.scheme not in _ENGINES:
        raise ValueError(
            f"The shop does not support {url.scheme}:// URLs. Use one of: {', '.join(_ENGINES)}."
        )
    described: dict[str, Any] = {"ENGINE": _ENGINES[url.scheme], "NAME": unquote(url.path).removeprefix("/")}
    if url.scheme == "sqlite":
        # With WAL, readers such as the live table do not wait for the worker. Writers wait for each other.
        described["OPTIONS"] = {"timeout": 20, "init_command": "PRAGMA journal_mode = WAL"}
        return described
    described |= {
        "HOST": url.hostname or "",
        "PORT": str(url.port or ""),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
    }
    if described["ENGINE"].endswith("mysql"):
        described["OPTIONS"] = {"charset": "utf8mb4"}
        described["TEST"] = {"CHARSET": "utf8mb4"}
    return described
