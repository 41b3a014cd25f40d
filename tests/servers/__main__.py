"""A server that stays, for work by hand: ``python -m tests.servers start DATABASE [PORT]``, then ``stop``."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.servers.binaries import STARTERS
from tests.servers.databases import url_variable
from tests.servers.processes import CannotStart

NOTES = Path(tempfile.gettempdir())


def start(database: str, port: int | None) -> int:
    """Start a server, say where it is, and leave it running."""
    note = _note(database)
    if note.exists() and _runs(json.loads(note.read_text())["pid"]):
        print(f"{database} runs already; `python -m tests.servers stop {database}` ends it.", file=sys.stderr)
        return 1
    try:
        server = STARTERS[database](port)
    except CannotStart as error:
        print(f"{database}: {error}", file=sys.stderr)
        return 1
    note.write_text(json.dumps({"pid": server.process.pid, "directory": str(server.directory)}))
    print(f"{url_variable(database)}={server.url}")
    return 0


def stop(database: str) -> int:
    """Stop a server that ``start`` left running, and remove its data."""
    note = _note(database)
    if not note.exists():
        print(f"{database} was not started from here.", file=sys.stderr)
        return 1
    started = json.loads(note.read_text())
    if _runs(started["pid"]):
        os.kill(started["pid"], signal.SIGTERM)
    for _ in range(300):
        if not _runs(started["pid"]):
            break
        time.sleep(0.1)
    shutil.rmtree(started["directory"], ignore_errors=True)
    note.unlink()
    return 0


def main() -> int:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("action", choices=["start", "stop"])
    parser.add_argument("database", choices=sorted(STARTERS))
    parser.add_argument("port", nargs="?", type=int, help="default: a free one")
    arguments = parser.parse_args()
    if arguments.action == "stop":
        return stop(arguments.database)
    return start(arguments.database, arguments.port)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _note(database: str) -> Path:
    return NOTES / f"geneva-server-{os.geteuid()}-{database}.json"


if __name__ == "__main__":
    sys.exit(main())
