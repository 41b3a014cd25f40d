"""The demo as people run it: a process, beside a real worker."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm_processes

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = [sys.executable, "-m", "example_project.demo"]
MANAGE = [sys.executable, str(ROOT / "example_project" / "manage.py")]
SECONDS = 200


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return warm_processes.run(command, cwd=ROOT, env=environment, stderr=subprocess.STDOUT, timeout=SECONDS)


def ask(program: str, environment: dict[str, str]) -> object:
    """Run a program inside the shop; return what it prints last, read as JSON."""
    done = run([*MANAGE, "shell", "-v", "0", "-c", program], environment)
    assert done.returncode == 0, done.stdout
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_every_order_ends_as_its_story_says_and_the_printed_password_opens_the_admin(
    shop: dict[str, str],
) -> None:
    done = run(DEMO, shop)

    assert done.returncode == 0, done.stdout
    assert "Removed steps in flight: {'check_credit': 1}" in done.stdout
    assert (
        "Emre's workflow has paused: ship raised example_project.shop.carrier.CarrierRefused" in done.stdout
    )
    assert "Removed steps in flight: none" in done.stdout
    assert "newsletter: send 2,000 of 2,000 (100%)" in done.stdout
    # No terminal, no control characters.
    assert "\x1b" not in done.stdout
    password = re.search(r"user: admin +password: (\S+)", done.stdout)
    assert password is not None, done.stdout
    program = (
        "import json; from django.test import Client; client = Client(SERVER_NAME='localhost');"
        f" entered = client.login(username='admin', password={password[1]!r});"
        " page = client.get('/admin/shop/order/');"
        " print(json.dumps([entered, page.status_code, page.content.decode().count('>finished<')]))"
    )
    assert ask(program, shop) == [True, 200, 6]


@pytest.mark.only_on("sqlite", reason="what a terminal shows is the same on every database")
def test_on_a_terminal_it_draws_a_table(shop: dict[str, str]) -> None:
    pytest.importorskip("rich", reason="the live table needs rich, of the extra `demo`")
    outer, inner = pty.openpty()
    environment = {**shop, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(
        DEMO, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=inner, stderr=inner
    )
    os.close(inner)
    shown = b""
    while True:
        try:
            piece = os.read(outer, 65536)
        except OSError:  # on Linux, how the other end's closing is told
            break
        if not piece:
            break
        shown += piece
    os.close(outer)

    text = shown.decode()
    assert process.wait(SECONDS) == 0, text
    assert "┃" in text
    assert "✓ ask_for_review" in text
    assert "↷ check_credit" in text


def test_ctrl_c_stops_the_worker_cleanly(shop: dict[str, str]) -> None:
    # Whoever runs the tests may ignore the signal, as a shell's background jobs do; a terminal does not.
    heeding = (
        "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        " runpy.run_module('example_project.demo', run_name='__main__')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", heeding],
        cwd=ROOT,
        # Nothing after the first step becomes due, so it is surely interrupted.
        env={**shop, "SHOP_DAY_SECONDS": "3600"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if "Hana: confirm completed" in line:
            break
    # As a terminal does: to the whole group.
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=SECONDS)

    assert process.returncode == 130, seen + rest
    assert "Traceback" not in rest
    # A worker that stopped well has nothing in hand and takes its row along.
    program = (
        "import json; from geneva_drive.models import Process, StepExecution;"
        " print(json.dumps([Process.objects.count(), StepExecution.objects.in_progress().count()]))"
    )
    assert ask(program, shop) == [0, 0]


def test_it_fails_when_a_workflow_does_not_end(shop: dict[str, str]) -> None:
    program = "import sys; from example_project import demo; demo.GIVE_UP_AFTER = 6; sys.exit(demo.main())"

    done = run([sys.executable, "-c", program], {**shop, "SHOP_DAY_SECONDS": "3600"})

    assert done.returncode == 1, done.stdout
    # How far it came depends on how fast this machine is.
    assert re.search(r"NOT AS EXPECTED: Ada: it is \w+ at \w+, not finished", done.stdout), done.stdout


def test_the_shops_own_tests_pass(shop: dict[str, str]) -> None:
    done = run([*MANAGE, "test", "--no-input", "example_project.shop"], shop)

    assert done.returncode == 0, done.stdout
    assert re.search(r"Ran \d+ tests", done.stdout), done.stdout


def test_the_shop_lacks_no_migration(shop: dict[str, str]) -> None:
    done = run([*MANAGE, "makemigrations", "--check", "--dry-run"], shop)

    assert (done.returncode, done.stdout.strip()) == (0, "No changes detected")
