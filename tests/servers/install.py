"""``python3 -m tests.servers.install``: in CI, as root on Debian, install what the suite needs.

Anywhere else it does nothing: a machine is its owner's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.servers.binaries import MYSQL_CHROOT

__all__ = ["install", "may_install"]

PACKAGES = (
    "postgresql",
    "mariadb-server",
    "redis-server",
    "rabbitmq-server",
    # Workers on hosts of another time, and behind a pooler.
    "faketime",
    "pgbouncer",
    # mysqlclient is compiled.
    "gcc",
    "pkg-config",
    "default-libmysqlclient-dev",
    # Brings MySQL, which Debian's releases do not carry.
    "debootstrap",
    # The admin's pages are tested in a real browser.
    "chromium",
    "chromium-driver",
    # Debian's own Python cannot make environments, nor compile, without them.
    "python3-venv",
    "python3-dev",
)

BOOTSTRAP_SECONDS = 600


def may_install(environ: Mapping[str, str]) -> bool:
    """Whether this is CI, as root, on Debian."""
    return environ.get("CI") == "true" and os.geteuid() == 0 and shutil.which("apt-get") is not None


def install() -> None:
    """Install the packages that are missing, and MySQL if that can be had."""
    missing = [package for package in PACKAGES if not _is_installed(package)]
    if missing:
        print(f"Installing {', '.join(missing)}", flush=True)
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
            done = subprocess.run(
                ["apt-get", "-qq", *command],
                env=quiet,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            if done.returncode != 0:
                sys.exit(f"apt-get {command[0]} failed:\n{done.stdout.decode(errors='replace')}")
    if not (MYSQL_CHROOT / "usr/sbin/mysqld").exists():
        _bootstrap_mysql()


def _bootstrap_mysql() -> None:
    """Debian unstable changes daily: without it the suite goes on, and says so at its end."""
    print(f"Putting MySQL into {MYSQL_CHROOT}", flush=True)
    # Moved only when complete, so that a broken attempt is never taken for a server.
    attempt = Path(tempfile.mkdtemp(prefix="geneva-mysql-", dir=MYSQL_CHROOT.parent))
    command = ["debootstrap", "--variant=minbase", "--include=mysql-server-core", "sid", str(attempt)]
    log = Path(tempfile.gettempdir()) / "geneva-mysql-debootstrap.log"
    try:
        with log.open("wb") as output:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=BOOTSTRAP_SECONDS,
                check=True,
            )
        attempt.chmod(0o755)
        attempt.rename(MYSQL_CHROOT)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"MySQL cannot be had: {error} ({log})", flush=True)
        # A killed debootstrap may leave the machine's own /proc and /sys mounted in there.
        if not any(os.path.ismount(attempt / folder) for folder in ("proc", "sys", "dev")):
            shutil.rmtree(attempt, ignore_errors=True)


def _is_installed(package: str) -> bool:
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Status}", package], capture_output=True, text=True, check=False
    )
    return done.stdout == "install ok installed"


if __name__ == "__main__":
    if may_install(os.environ):
        install()
    sys.exit(0)
