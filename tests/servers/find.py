"""A server for each database: named by the environment, else at its usual port, else one of our own."""

from __future__ import annotations

import getpass
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.environments import mysqlclient_problem
from tests.servers.binaries import STARTERS
from tests.servers.databases import url_variable
from tests.servers.login import server_version
from tests.servers.probe import PROBES
from tests.servers.processes import CannotStart, PrivateServer

__all__ = ["Server", "find"]

PORTS = {"postgresql": (5432,), "mysql": (3307, 3306), "mariadb": (3306, 3307)}
HOST = "127.0.0.1"


@dataclass
class Server:
    """A server that the suite may use; ``private`` is set where the suite has to stop it."""

    database: str
    url: str
    version: str
    private: PrivateServer | None = None


def find(database: str, environ: Mapping[str, str]) -> Server:
    """The server to test on. Raises ``CannotStart`` with the reason where there is none."""
    if database != "postgresql" and importlib.util.find_spec("MySQLdb") is None:
        raise CannotStart(mysqlclient_problem())
    if url := environ.get(url_variable(database)):
        return _named(database, url)
    refusals: list[str] = []
    for port in PORTS[database]:
        found = PROBES[database](HOST, port)
        if found is None or found.database != database:
            continue
        for user in _users(database):
            url = f"{database}://{user}@{HOST}:{port}/"
            try:
                return Server(database, url, server_version(url))
            except CannotStart as error:
                refusals.append(f"at port {port}, {error}")
    try:
        private = STARTERS[database](None)
    except CannotStart as error:
        raise CannotStart("; ".join([*refusals, str(error)])) from error
    return Server(database, private.url, server_version(private.url), private)


def _named(database: str, url: str) -> Server:
    address = urlsplit(url)
    found = PROBES[database](address.hostname or HOST, address.port or PORTS[database][0])
    if found is None or found.database != database:
        what = "nothing" if found is None else found.database
        raise CannotStart(
            f"{url_variable(database)} names {address.hostname}:{address.port}: {what} answers there"
        )
    return Server(database, url, server_version(url))


def _users(database: str) -> list[str]:
    """Whom to try, without a password or with the one that libpq finds for itself."""
    if database != "postgresql":
        return ["root"]
    return list(dict.fromkeys([os.environ.get("PGUSER", "postgres"), "postgres", getpass.getuser()]))
