"""Processes that begin with Django imported, since hundreds of them would otherwise each import it anew.

A *server* imports what projects import of Django and then forks for each request: the fork is an ordinary
process with the arguments, environment, folder and files asked for, and runs ``-m module``, ``-c code`` or a
script as the interpreter would. Nothing of geneva_drive is imported before, and no setting is read.

``GENEVA_TEST_COLD=1`` starts each process anew, as does everything that depends on the interpreter's own start:
options before the program, another ``LD_PRELOAD``. On another system than Linux all are started anew.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn

__all__ = ["Process", "WarmProcess", "run", "start"]

COLD = "GENEVA_TEST_COLD"

IMPORTED = (
    "asyncio",
    "concurrent.futures",
    "django.contrib.admin",
    "django.contrib.auth.hashers",
    "django.contrib.messages.storage",
    "django.contrib.staticfiles",
    "django.core.handlers.wsgi",
    "django.core.mail",
    "django.core.management.commands.check",
    "django.core.management.commands.makemigrations",
    "django.core.management.commands.migrate",
    "django.core.management.commands.shell",
    "django.core.management.templates",
    "django.db.backends.sqlite3.base",
    "django.db.models",
    "django.template.loader",
    "django.test",
    "django.urls",
    "django.views",
    "doctest",
    "logging.config",
    "uuid",
)
"""What nearly every process of a Django project imports, and what asks for no settings."""
OF_CELERY = (
    "celery.app.trace",
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.bin.worker",
    "celery.concurrency.prefork",
    "celery.fixups.django",
    "celery.worker.consumer",
    "kombu.transport.pyamqp",
    "kombu.transport.redis",
)
"""Imported beside the others by the server for ``-m celery`` alone: what no other process has, none shall find."""
IMPORTED_IF_INSTALLED = (
    "django.db.backends.mysql.base",
    "django.db.backends.postgresql.base",
    "opentelemetry.propagate",
    "opentelemetry.trace",
)

_STATUS = struct.Struct("!i")
_FILES = 4  # input, output, errors, and where the end is told


class WarmProcess:
    """A process that a server has forked; what tests use of ``subprocess.Popen``."""

    def __init__(self, args: Sequence[str], status: int) -> None:
        self.args = list(args)
        self.returncode: int | None = None
        self._status = status
        (self.pid,) = _STATUS.unpack(os.read(status, _STATUS.size))

    def poll(self) -> int | None:
        """Return its exit status, None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises ``subprocess.TimeoutExpired``."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def has_stopped(self) -> bool:
        """Whether a SIGSTOP has taken effect."""
        # "pid (name) state …", and a name may hold anything.
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            told = os.read(self._status, _STATUS.size)
            os.close(self._status)
            # Nothing is told where the whole group was killed.
            status = _STATUS.unpack(told)[0] if told else signal.SIGKILL
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def __del__(self) -> None:
        if self.returncode is None:
            with contextlib.suppress(OSError, AttributeError):
                os.close(self._status)


class ColdProcess(subprocess.Popen[bytes]):
    """A process that the interpreter started."""

    def has_stopped(self) -> bool:
        """Whether a SIGSTOP has taken effect."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        return os.WIFSTOPPED(status)


Process = ColdProcess | WarmProcess


def start(
    args: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    cwd: Path | None = None,
) -> Process:
    """Start the interpreter that runs the tests with ``args``, whose first word is that interpreter.

    ``stdin``, ``stdout`` and ``stderr`` are as for ``subprocess.Popen``, but not ``PIPE``.
    """
    if _is_cold(args, env):
        return ColdProcess(args, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr)
    with contextlib.ExitStack() as stack:
        files = [_descriptor(each, stack) for each in (stdin, stdout)]
        files.append(files[1] if stderr == subprocess.STDOUT else _descriptor(stderr, stack))
        return _server(args[1:3]).start(args, env, cwd or Path.cwd(), files)


def run(
    args: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stderr: int | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the interpreter that runs the tests to its end and return what it wrote.

    With ``stderr=subprocess.STDOUT`` errors are among the output. Raises ``subprocess.TimeoutExpired``.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = start(args, env=env, cwd=cwd, stdout=output, stderr=stderr or errors)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    assert process.returncode is not None
    return subprocess.CompletedProcess(args, process.returncode, *texts)


def _is_cold(args: Sequence[str], env: Mapping[str, str]) -> bool:
    if os.environ.get(COLD) == "1" or sys.platform != "linux":
        return True
    if args[0] != sys.executable or (args[1].startswith("-") and args[1] not in ("-c", "-m")):
        return True
    return any(
        env.get(name) != os.environ.get(name)
        for name in {*env, *os.environ}
        if name.startswith(("LD_", "PYTHON")) and name != "PYTHONPATH"
    )


def _descriptor(given: int | IO[bytes], stack: contextlib.ExitStack) -> int:
    if given == subprocess.DEVNULL:
        return stack.enter_context(open(os.devnull, "r+b", buffering=0)).fileno()
    assert given != subprocess.PIPE
    return given if isinstance(given, int) else given.fileno()


class _Server:
    """The process that forks, as those see it who ask it to."""

    def __init__(self, *modules: str) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_processes", str(theirs.fileno()), *modules],
                cwd=Path(__file__).resolve().parent.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._owner = os.getpid()

    def start(self, args: Sequence[str], env: Mapping[str, str], cwd: Path, files: list[int]) -> WarmProcess:
        status, theirs = os.pipe()
        request = json.dumps({"args": list(args), "env": dict(env), "cwd": str(cwd)}).encode()
        try:
            self._socket.sendmsg(
                [struct.pack("!I", len(request))],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [*files, theirs]))],
            )
            self._socket.sendall(request)
        finally:
            os.close(theirs)
        return WarmProcess(args, status)

    def stop(self) -> None:
        if os.getpid() == self._owner:
            self._socket.close()
            self._process.wait()


_servers: dict[bool, _Server] = {}


def _server(program: Sequence[str]) -> _Server:
    celery = list(program) == ["-m", "celery"]
    if celery not in _servers:
        _servers[celery] = _Server(*(OF_CELERY if celery else ()))
        atexit.register(_servers[celery].stop)
    return _servers[celery]


# -- the other side


def _import_all(more: Sequence[str]) -> None:
    for name in (*IMPORTED, *more):
        import_module(name)
    for name in IMPORTED_IF_INSTALLED:
        with contextlib.suppress(Exception):
            import_module(name)
    from django.conf import settings

    assert not settings.configured


def _serve(connection: socket.socket) -> list[str]:
    """Fork for each request. Returns in the fork, with the arguments of what it has to run."""
    while True:
        head, ancillary, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(_FILES * 4))
        if not head:
            os._exit(0)  # the tests are over
        files = array.array("i", ancillary[0][2])
        (length,) = struct.unpack("!I", head)
        request = json.loads(connection.recv(length, socket.MSG_WAITALL))
        # The first fork waits for the second and tells how it ended, so that this loop need not.
        keeper = os.fork()
        if keeper == 0 and _become(request, list(files), connection):
            return list(request["args"])
        for descriptor in files:
            os.close(descriptor)


def _become(request: dict[str, object], files: list[int], connection: socket.socket) -> bool:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.close()
    *standard, status = files
    child = os.fork()
    if child:
        os.write(status, _STATUS.pack(child))
        for descriptor in standard:
            os.close(descriptor)
        # What ends a group together is not for the one who tells of it.
        for end in (signal.SIGINT, signal.SIGTERM):
            signal.signal(end, signal.SIG_IGN)
        os.write(status, _STATUS.pack(os.waitpid(child, 0)[1]))
        os._exit(0)
    os.close(status)
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
    for descriptor in {*standard} - {0, 1, 2}:
        os.close(descriptor)
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(request["env"])  # type: ignore[call-overload]
    time.tzset()
    os.chdir(str(request["cwd"]))
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    # The first entry is the folder in which the server was started.
    sys.path[:] = [*given, *(path for path in sys.path[1:] if path not in own)]
    return True


def _run(args: list[str]) -> None:
    """Do what the interpreter does with its arguments."""
    _, first, *rest = args
    if first == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = [first, *rest[1:]]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path.insert(0, "")
        sys.argv = [first, *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.path.insert(0, str(Path(first).resolve().parent))
        sys.argv = [first, *rest]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__file__ = first
        exec(compile(Path(first).read_bytes(), first, "exec"), main.__dict__)


def _end(error: BaseException | None) -> NoReturn:
    """End the process as the interpreter does, but for freeing what the server has imported."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    elif error is not None:
        code = 1
        sys.excepthook(type(error), error, error.__traceback__)
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads that are not daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def _main() -> None:
    # Nobody waits for those that tell how the others ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _import_all(sys.argv[2:])
    gc.freeze()
    args = _serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        _run(args)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it ends the process
        _end(error)
    _end(None)


if __name__ == "__main__":
    _main()
