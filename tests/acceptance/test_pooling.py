"""Behind a pooler in transaction mode: a client connection has no fixed server session."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.core.management import call_command
from django.db import connection

from geneva_drive.models import Process
from tests.acceptance.processes import Launcher, until
from tests.acceptance.room import Room
from tests.acceptance.workshop.workflows import Asking, Chain, Effects
from tests.servers.databases import url_variable
from tests.servers.probe import PROBES
from tests.servers.processes import free_port, user_for

pytestmark = pytest.mark.only_on("postgresql", reason="pgbouncer is PostgreSQL's")


@pytest.fixture
def pooled(transactional_db: None, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return the environment of a process that uses the database through two pooled sessions."""
    bouncer = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if bouncer is None:
        pytest.skip("pgbouncer is not installed")
    given, port = connection.settings_dict, free_port()
    folder = tmp_path / "bouncer"
    folder.mkdir()
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n* = host={given['HOST']} port={given['PORT']} user={given['USER']}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 2\nunix_socket_dir =\n"
        # Parameters that Django sends when it connects, and that the pooler can ignore.
        "ignore_startup_parameters = extra_float_digits,options\n"
    )
    user = user_for("postgres")
    for path in (*[tmp_path, *tmp_path.parents][:3], folder, settings):
        path.chmod(path.stat().st_mode | 0o055)
    process = subprocess.Popen(
        [bouncer, str(settings)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=user,
    )
    try:
        until(lambda: PROBES["postgresql"]("127.0.0.1", port), "the pooler answers")
        server = urlsplit(os.environ.get(url_variable("postgresql"), f"postgresql://{given['USER']}@x/"))
        yield {
            url_variable("postgresql"): f"postgresql://{server.username or given['USER']}@127.0.0.1:{port}/"
        }
    finally:
        process.terminate()
        process.wait()


def test_a_worker_runs_everything_behind_a_pooler(
    launch: Launcher, room: Room, pooled: dict[str, str]
) -> None:
    for kind in (Chain, Effects, Asking):
        for _ in range(4):
            kind.start()
    room.allow("go")

    child = launch.worker("--drain", "--no-listen", "--threads", "4", environment=pooled)
    child.finish()

    assert {each.state for kind in (Chain, Effects, Asking) for each in kind.objects.all()} == {"finished"}
    assert not Process.objects.exists()
    assert "Traceback" not in child.output()


def test_housekeeping_works_behind_a_pooler(launch: Launcher, room: Room, pooled: dict[str, str]) -> None:
    Chain.start()
    call_command("geneva_worker", "--drain", "--no-listen", verbosity=0)
    child = launch.command("geneva_housekeeping", settings={"RETENTION": 0}, environment=pooled)
    child.finish()
    assert "1 workflows deleted" in child.output()
