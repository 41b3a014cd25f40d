"""How much code an operation goes through: functions of the package that are entered, and hops between its files.

``python -m benchmarks.paths [--url postgresql://postgres@127.0.0.1:5432/] [--anonymous] [--json]`` creates its own
database and removes it: SQLite in a temporary folder, or the server in ``GENEVA_TEST_DATABASE`` or ``--url``. Each
operation runs twice, each time with a new workflow: once to fill caches and complete late imports, and once to be
measured.

"Functions" is the number of different functions of the package that were entered; a function that is called ten times
counts once. "Hops" counts changes of file: every call is written down in order, and each call of a function in another
file than the previous one is a hop. Returning is not a hop. Resuming a generator counts as a call. Code of Django and
Python in between is ignored. Only the thread that runs the operation is measured.

Not counted are module and class bodies, generated functions (the methods of a dataclass), and lambdas, comprehensions
and generator expressions. ``--anonymous`` counts the last three too. Compare such figures only within one Python
version, because Python 3.12 and newer inline most comprehensions.

"Claim to successor" runs ``execute()`` for a step that is due and has an empty body, until its successor is written,
which is due an hour later. The worker's search for due steps is not included, because it cannot be separated from the
rest of the worker's loop. On SQLite, MySQL and MariaDB the step takes the portable path, and on PostgreSQL the fast
path. All workflows have a hero, except the loop.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from urllib.parse import urlsplit

from tests.servers.databases import run_directory, url_variable

Figures = dict[str, dict[str, int]]
"""The number of functions and hops of each operation."""


@dataclass(frozen=True)
class Operation:
    """One measured operation."""

    name: str
    prepare: Callable[[], Any]
    """Creates the argument of ``act``."""
    act: Callable[[Any], object]
    scheduled: str | None
    """The step that is scheduled afterwards; shows that the operation worked."""


class Recorder:
    """Records the functions of the package that this thread enters.

    Parameters
    ----------
    anonymous
        Whether to count lambdas, comprehensions and generator expressions.
    """

    def __init__(self, *, anonymous: bool) -> None:
        spec = find_spec("geneva_drive")
        assert spec is not None
        assert spec.origin is not None
        self._package = str(Path(spec.origin).parent) + os.sep
        self._anonymous = anonymous
        self._entered: list[CodeType] = []

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record the functions entered in the block; earlier records are discarded."""
        self._entered.clear()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def figures(self) -> dict[str, int]:
        """Return the number of functions and hops recorded."""
        codes = [code for code in self._entered if self._counts(code)]
        return {
            # Code objects compare by content, so equal functions in two files would count once.
            "functions": len({(code.co_filename, code.co_firstlineno, code.co_qualname) for code in codes}),
            "hops": sum(before.co_filename != after.co_filename for before, after in pairwise(codes)),
        }

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(self._package):
            self._entered.append(frame.f_code)

    def _counts(self, code: CodeType) -> bool:
        # Exclude the bodies of modules and classes.
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)
        return is_function and (self._anonymous or not code.co_name.startswith("<"))


@contextlib.contextmanager
def database(url: str | None) -> Iterator[str]:
    """Set up Django with a new database and all tables, yield the vendor, and remove the database."""
    if url is not None:
        scheme = urlsplit(url).scheme
        os.environ |= {"GENEVA_TEST_DATABASE": scheme, url_variable(scheme): url}
    # A separate name, so that a database of the tests is not used.
    os.environ["GENEVA_TEST_NAME"] = f"geneva_paths_{os.getpid()}"
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    folder = run_directory(os.environ)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        import django

        django.setup()
        from django.db import connection
        from django.test.utils import setup_databases, teardown_databases

        made = setup_databases(verbosity=0, interactive=False, aliases={"default": False})
        try:
            yield connection.vendor
        finally:
            teardown_databases(made, verbosity=0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def operations(vendor: str) -> list[Operation]:
    """Return all operations, in the order of the table."""
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client
    from django.urls import reverse

    from geneva_drive import Iteration, Workflow, resumable_step, step
    from geneva_drive.execution.executor import execute
    from tests.testapp.models import Order

    class Two(Workflow):
        class Meta:
            app_label = "bench"

        @step
        def one(self) -> None: ...

        @step(wait=timedelta(hours=1))
        def two(self) -> None: ...

    class Waiting(Workflow):
        class Meta:
            app_label = "bench"

        @step(wait_for="x")
        def one(self) -> None: ...

    class Loop(Workflow):
        may_proceed_without_hero = True

        class Meta:
            app_label = "bench"

        @resumable_step
        def one(self, iteration: Iteration) -> None:
            for _ in iteration.iterate(range(3)):
                pass

    client = Client()
    client.force_login(User.objects.create_superuser("root"))

    def hero() -> Order:
        return Order.objects.create()

    def scheduled(workflow: Workflow) -> Any:
        return workflow.executions.get(state="scheduled").pk

    def waiting() -> Any:
        workflow = Waiting.start(hero())
        execute(scheduled(workflow))
        return Waiting.objects.get(pk=workflow.pk)

    def paused() -> Any:
        workflow = Two.start(hero())
        workflow.pause()
        return Two.objects.get(pk=workflow.pk)

    def by_command(workflow: Workflow) -> None:
        call_command("geneva_resume_at", "two", str(workflow.pk), stdout=io.StringIO())

    def by_admin(workflow: Workflow) -> None:
        address = reverse("admin:geneva_drive_act", args=[workflow.pk, "resume_at"])
        response = client.post(address, {"step": "two", "reason": "benchmark"})
        assert response.status_code == 302, response.status_code

    path = "fast path" if vendor == "postgresql" else "portable path"
    return [
        Operation("start", hero, Two.start, "one"),
        Operation(f"claim to successor ({path})", lambda: scheduled(Two.start(hero())), execute, "two"),
        Operation("signal", waiting, lambda workflow: workflow.signal("x"), "one"),
        Operation("resume_at by method", paused, lambda workflow: workflow.resume_at("two"), "two"),
        Operation("resume_at by command", paused, by_command, "two"),
        Operation("resume_at by admin", paused, by_admin, "two"),
        Operation("loop of three checkpoints", lambda: scheduled(Loop.start()), execute, None),
    ]


def measure(operation: Operation, recorder: Recorder) -> dict[str, int]:
    """Run the operation twice, and count the second run."""
    from geneva_drive import Workflow

    operation.act(operation.prepare())
    subject = operation.prepare()
    with recorder.recording():
        operation.act(subject)
    steps = Workflow.objects.latest("created_at").executions.filter(state="scheduled")
    found = steps.values_list("step_name", flat=True).first()
    assert found == operation.scheduled, (operation.name, found)
    return recorder.figures()


def main() -> None:
    description = __doc__.splitlines()[0] if __doc__ else None
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paths", description=description)
    parser.add_argument(
        "--url", help="URL of a database server: scheme://user:password@host:port/. Default: SQLite."
    )
    parser.add_argument(
        "--anonymous",
        action="store_true",
        help="Also count lambdas, comprehensions and the like.",
    )
    parser.add_argument("--json", action="store_true", help="Print the figures as JSON.")
    arguments = parser.parse_args()
    recorder = Recorder(anonymous=arguments.anonymous)
    with database(arguments.url) as vendor:
        results: Figures = {each.name: measure(each, recorder) for each in operations(vendor)}
    if arguments.json:
        print(json.dumps({"database": vendor, "operations": results}))
        return
    print(f"{f'on {vendor}':36}{'functions':>12}{'hops':>12}")
    for name, found in results.items():
        print(f"{name:36}{found['functions']:12}{found['hops']:12}")


if __name__ == "__main__":
    main()
