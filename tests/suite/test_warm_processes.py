"""What a server forks does what the interpreter would have done with the same arguments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.processes import Child
from tests.warm_processes import COLD, WarmProcess, run, start

TELL = "import os, sys; print(__name__, sys.argv, os.getcwd(), sys.path[0], os.environ.get('WORD'))"


@pytest.fixture(params=["warm", "cold"])
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv(COLD, "1" if request.param == "cold" else "0")
    return {**os.environ, "WORD": "given"}


def test_code_has_its_arguments_environment_and_folder(environment: dict[str, str], tmp_path: Path) -> None:
    done = run([sys.executable, "-c", TELL, "one"], env=environment, cwd=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"__main__ ['-c', 'one'] {tmp_path}  given\n",
        "",
    )


def test_so_has_a_script(environment: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "inner" / "script.py"
    script.parent.mkdir()
    script.write_text(TELL)

    done = run([sys.executable, "inner/script.py", "one"], env=environment, cwd=tmp_path)

    assert done.stdout == f"__main__ ['inner/script.py', 'one'] {tmp_path} {script.parent} given\n", (
        done.stderr
    )


def test_so_has_a_module_that_its_path_has_first(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(TELL)

    done = run([sys.executable, "-m", "module", "one"], env=environment, cwd=tmp_path)

    assert done.stdout == f"__main__ ['{tmp_path / 'module.py'}', 'one'] {tmp_path} {tmp_path} given\n"


@pytest.mark.parametrize(
    ("program", "status", "written"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no')", 1, "no\n"),
        ("raise SystemExit", 0, ""),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import atexit, sys; atexit.register(print, 'at the end', file=sys.stderr)", 0, "at the end\n"),
        (
            "import sys, threading; threading.Timer(0.1, print, ['late'], {'file': sys.stderr}).start()",
            0,
            "late\n",
        ),
    ],
)
def test_it_ends_in_the_same_way(
    environment: dict[str, str], program: str, status: int, written: str
) -> None:
    done = run([sys.executable, "-c", program], env=environment)

    assert done.returncode == status
    assert written in done.stderr
    assert bool(done.stderr) == bool(written)


def test_it_begins_without_anything_of_ours_and_without_settings(environment: dict[str, str]) -> None:
    program = (
        "import sys; from django.conf import settings;"
        " print(settings.configured, [name for name in sys.modules if name.startswith('geneva_drive')])"
    )

    assert run([sys.executable, "-c", program], env=environment).stdout == "False []\n"


def test_nobody_but_celery_finds_celery_imported() -> None:
    program = "import sys; print('celery' in sys.modules)"

    assert run([sys.executable, "-c", program], env=os.environ).stdout == "False\n"


def test_a_process_is_signalled_waited_for_and_timed_out(environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"]
    child = Child(command, environment, tmp_path / "log")
    child.has_said("here")
    assert child.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.process.wait(0.01)

    child.stop()
    child.kill()

    assert child.wait() == -signal.SIGKILL
    assert child.process.poll() == -signal.SIGKILL


def test_what_depends_on_the_interpreters_start_starts_one() -> None:
    kinds = []
    for options, more in (([], {}), (["-W", "error"], {}), ([], {"PYTHONHASHSEED": "1"})):
        process = start(
            [sys.executable, *options, "-c", ""],
            env={**os.environ, **more},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        kinds.append(type(process) is WarmProcess)
        assert process.wait() == 0

    assert kinds == [sys.platform == "linux" and os.environ.get(COLD) != "1", False, False]
