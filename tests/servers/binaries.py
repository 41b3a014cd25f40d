"""Servers started from what is installed on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.servers.processes import (
    CannotStart,
    PrivateServer,
    free_port,
    launch,
    private_directory,
    run_quietly,
    user_for,
)

__all__ = ["MYSQL_CHROOT", "STARTERS", "start_mariadb", "start_mysql", "start_postgresql"]

MYSQL_CHROOT = Path(os.environ.get("GENEVA_MYSQL_CHROOT", "/var/cache/geneva-mysql"))
"""Debian releases carry no MySQL server. ``debootstrap`` puts the one of Debian unstable here."""

# Nothing here outlives the tests: no replication log, no sync at each commit.
MYSQL_OPTIONS = (
    "--bind-address=127.0.0.1",
    "--skip-log-bin",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-buffer-pool-size=256M",
    "--max-connections=300",
)


UNSAFE_POSTGRESQL = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")


def start_postgresql(port: int | None = None, options: tuple[str, ...] = UNSAFE_POSTGRESQL) -> PrivateServer:
    """A PostgreSQL of our own; a benchmark wants one that syncs. Raises ``CannotStart``."""
    initdb, postgres = _postgresql_binary("initdb"), _postgresql_binary("postgres")
    user = user_for("postgres")
    port = port or free_port()
    directory = private_directory("postgresql", user)
    log, data = directory / "server.log", directory / "data"
    run_quietly(
        [initdb, "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"],
        log,
        user,
    )
    command = [postgres, "-D", str(data), "-p", str(port), "-k", str(directory), "-h", "127.0.0.1"]
    for option in options:
        command += ["-c", option]
    return launch(command, f"postgresql://postgres@127.0.0.1:{port}/", directory, user)


def start_mariadb(port: int | None = None) -> PrivateServer:
    """A MariaDB of our own. Raises ``CannotStart``."""
    install = _binary("mariadb-install-db")
    server = _binary("mariadbd")
    user = user_for("mysql")
    port = port or free_port()
    directory = private_directory("mariadb", user)
    data = directory / "data"
    run_quietly(
        [
            install,
            "--no-defaults",
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            *([f"--user={user}"] if user else []),
        ],
        directory / "server.log",
        user,
    )
    command = [
        server,
        "--no-defaults",
        f"--datadir={data}",
        f"--port={port}",
        f"--socket={directory / 'mariadb.sock'}",
        f"--pid-file={directory / 'mariadb.pid'}",
        *MYSQL_OPTIONS,
    ]
    return launch(command, f"mariadb://root@127.0.0.1:{port}/", directory, user)


def start_mysql(port: int | None = None) -> PrivateServer:
    """A MySQL of our own, installed or in the chroot. Raises ``CannotStart``."""
    installed = shutil.which("mysqld", path=_search_path())
    if installed is not None and _is_mysql([installed]):
        user = user_for("mysql")
        return _start_mysql([installed], private_directory("mysql", user), None, user, port)
    if os.geteuid() == 0 and (MYSQL_CHROOT / "usr/sbin/mysqld").exists():
        # The server's data lie inside, where it finds them under another path.
        inside = MYSQL_CHROOT / "tmp"
        inside.chmod(0o1777)
        command = ["chroot", str(MYSQL_CHROOT), "/usr/sbin/mysqld"]
        return _start_mysql(command, private_directory("mysql", None, inside), MYSQL_CHROOT, "root", port)
    raise CannotStart("mysqld is not installed (what Debian installs under that name is MariaDB)")


def _start_mysql(
    command: list[str], directory: Path, root: Path | None, user: str | None, port: int | None
) -> PrivateServer:
    seen = directory if root is None else Path("/") / directory.relative_to(root)
    port = port or free_port()
    common = [*command, "--no-defaults", f"--datadir={seen / 'data'}", *([f"--user={user}"] if user else [])]
    run_quietly([*common, "--initialize-insecure"], directory / "server.log")
    serve = [
        *common,
        f"--port={port}",
        f"--socket={seen / 'mysql.sock'}",
        f"--pid-file={seen / 'mysql.pid'}",
        "--mysqlx=OFF",
        "--secure-file-priv=NULL",
        *MYSQL_OPTIONS,
    ]
    return launch(serve, f"mysql://root@127.0.0.1:{port}/", directory)


STARTERS: dict[str, Callable[[int | None], PrivateServer]] = {
    "postgresql": start_postgresql,
    "mariadb": start_mariadb,
    "mysql": start_mysql,
}


def _search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def _binary(name: str) -> str:
    path = shutil.which(name, path=_search_path())
    if path is None:
        raise CannotStart(f"{name} is not installed")
    return path


def _postgresql_binary(name: str) -> str:
    # Debian keeps each major version's servers in a folder of their own, outside PATH.
    versions = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parent.parent.name)
    )
    return str(versions[-1]) if versions else _binary(name)


def _is_mysql(command: list[str]) -> bool:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return done.returncode == 0 and "mariadb" not in done.stdout.lower()
