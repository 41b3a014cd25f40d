"""The virtual environments of the suite. ``python -m tests.environments EXTRA…`` prepares the default one.

Two of them: the oldest supported Python and Django, and the newest of both that this machine can have.
Standard library alone, since this runs before anything is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "CannotBuild",
    "Environment",
    "Interpreter",
    "environment",
    "interpreters",
    "mysqlclient_problem",
    "prepare",
    "prepare_default",
    "prepare_newest",
]

ROOT = Path(__file__).resolve().parent.parent
DEFAULT = ROOT / ".venv"
NEWEST = ROOT / ".venv-newest"

OLDEST_PYTHON = (3, 11)
OLDEST_DJANGO = "Django~=5.2.0"
NEWEST_DJANGO = "Django>=5.2"
# Django 6.0 and later ask for it: on an older Python the newest Django is the oldest one we support.
PYTHON_OF_DJANGO_6 = (3, 12)

# ensurepip is what Debian splits off: without it an interpreter makes no virtual environment.
ASK = "import sys, venv, ensurepip; print(*sys.version_info[:4], sys.prefix == sys.base_prefix)"


class CannotBuild(Exception):
    """The environment cannot be had here; the message says why."""


@dataclass(frozen=True, order=True)
class Interpreter:
    """A Python that runs and can make virtual environments."""

    version: tuple[int, int, int]
    path: str

    def __str__(self) -> str:
        return ".".join(map(str, self.version))


@dataclass(frozen=True)
class Environment:
    """A prepared environment, and the versions of what is in it."""

    python: Path
    versions: dict[str, str]

    def __str__(self) -> str:
        return f"Python {self.versions['python']}, Django {self.versions['django']}"


def environment(python: Path) -> Environment:
    """Ask an environment's interpreter what it has."""
    program = (
        "import django, json, platform, sqlite3; print(json.dumps({'python': platform.python_version(),"
        " 'django': django.get_version(), 'sqlite': sqlite3.sqlite_version}))"
    )
    done = subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=True)
    return Environment(python, json.loads(done.stdout))


def interpreters() -> list[Interpreter]:
    """The usable Pythons of this machine, oldest first: of each minor version the newest."""
    folders = [Path(folder) for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    folders += sorted(Path.home().glob(".pyenv/versions/*/bin"))
    found: list[Interpreter] = []
    for folder in folders:
        for path in (folder / "python3", *sorted(folder.glob("python3.[0-9][0-9]"))):
            # A shim may exist and fail, hence the question to each.
            if os.access(path, os.X_OK) and (version := _version(str(path), of_environments=False)):
                found.append(Interpreter(version, str(path)))
    return sorted({one.version[:2]: one for one in sorted(found)}.values())


def prepare_default(extras: list[str]) -> Path:
    """Prepare ``.venv``: the oldest Python with the oldest Django. Returns its interpreter's path."""
    usable = interpreters()
    if not usable:
        raise CannotBuild("no Python 3.11 or newer with the venv module was found (Debian: python3-venv)")
    python = prepare(DEFAULT, usable[0], extras, OLDEST_DJANGO)
    if "test" in extras:
        _try_mysqlclient(DEFAULT, python)
    return python


def prepare_newest() -> Path:
    """Prepare ``.venv-newest``. Raises ``CannotBuild`` where it would equal the default one."""
    usable = interpreters()
    newest = usable[-1]
    if newest.version < PYTHON_OF_DJANGO_6:
        raise CannotBuild(
            f"Python {newest} is the newest here, and Django {OLDEST_DJANGO[-5:-2]} the newest for it"
        )
    return prepare(NEWEST, newest, ["test"], NEWEST_DJANGO)


def prepare(folder: Path, interpreter: Interpreter, extras: list[str], django: str) -> Path:
    """Make ``folder`` an environment with the package and ``extras``. Quick when it is one already."""
    python = folder / "bin" / "python"
    log = ROOT / ".cache" / f"{folder.name.lstrip('.')}.log"
    log.parent.mkdir(exist_ok=True)
    if _version(str(python)) is None:
        print(f"Python {interpreter} makes {folder.name}", flush=True)
        _run([interpreter.path, "-m", "venv", "--clear", str(folder)], log)
        # The pip that came with the interpreter may be years old.
        _run([str(python), "-m", "pip", "install", "--quiet", "--upgrade", "pip"], log)
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + django.encode()).hexdigest()
    stamps = {extra: folder / f"stamp-{extra}" for extra in extras}
    missing = [extra for extra, stamp in stamps.items() if not stamp.exists() or stamp.read_text() != wanted]
    if missing:
        print(f"{folder.name}: installing {', '.join(missing)}", flush=True)
        package = f".[{','.join(missing)}]"
        _run([str(python), "-m", "pip", "install", "--quiet", "--editable", package, django], log)
        for extra in missing:
            stamps[extra].write_text(wanted)
    return python


def _try_mysqlclient(folder: Path, python: Path) -> None:
    """It is compiled, so a machine may not be able to install it; the suite then says so at its end."""
    tried_before = _mysqlclient_log().exists()
    if _succeeds([str(python), "-c", "import MySQLdb"]) or (tried_before and _lacking()):
        return
    print(f"{folder.name}: compiling mysqlclient", flush=True)
    try:
        _run([str(python), "-m", "pip", "install", "--quiet", "mysqlclient>=2.2"], _mysqlclient_log())
    except CannotBuild:
        print("mysqlclient could not be compiled: MySQL and MariaDB will not run", flush=True)


def mysqlclient_problem() -> str:
    """Why mysqlclient is not there, for people."""
    lacking = _lacking()
    why = f"no {' and no '.join(lacking)} here" if lacking else f"see {_mysqlclient_log().relative_to(ROOT)}"
    return f"mysqlclient, which has to be compiled, could not be installed ({why})"


def _lacking() -> list[str]:
    return [tool for tool in ("cc", "pkg-config") if shutil.which(tool) is None]


def _mysqlclient_log() -> Path:
    return ROOT / ".cache" / "mysqlclient.log"


def _version(python: str, *, of_environments: bool = True) -> tuple[int, int, int] | None:
    """The version of a usable interpreter: final, 3.11 or newer, able to make environments."""
    try:
        done = subprocess.run([python, "-c", ASK], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    parts = done.stdout.split()
    if done.returncode != 0 or len(parts) != 5 or parts[3] != "final":
        return None
    version = (int(parts[0]), int(parts[1]), int(parts[2]))
    if version < OLDEST_PYTHON or (parts[4] == "False" and not of_environments):
        return None
    return version


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(command: list[str], log: Path) -> None:
    with log.open("a") as output:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT, check=False
        )
    if done.returncode != 0:
        lines = log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        raise CannotBuild(f"`{' '.join(command[1:4])}` failed ({log.relative_to(ROOT)}): {lines[-1]}")


def main() -> int:
    """Prepare the default environment with the extras named."""
    parser = argparse.ArgumentParser(prog="python -m tests.environments", description=__doc__)
    parser.add_argument(
        "extras", nargs="+", metavar="EXTRA", help="of pyproject.toml: test, lint, docs, demo"
    )
    try:
        prepare_default(parser.parse_args().extras)
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
