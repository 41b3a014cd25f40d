"""What every test may use."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections

from tests.parts import chosen_parts, part_of
from tests.servers.databases import run_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent

DATABASE = os.environ.get("GENEVA_TEST_DATABASE", "sqlite")
"""The database that this run is on: sqlite, postgresql, mysql or mariadb."""


def _is_controller(config: pytest.Config) -> bool:
    return not hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    # For processes that tests start: some write a module twice within the second that the time of a
    # compiled file is precise to. This process has made up its mind before, and so have xdist's workers.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    directory = run_directory(os.environ)
    if _is_controller(config):
        # What a killed run with the same process number may have left.
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(mode=0o700)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _is_controller(config):
        shutil.rmtree(run_directory(os.environ), ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = chosen_parts()
    if others := [item for item in items if part_of(item) not in chosen]:
        items[:] = [item for item in items if part_of(item) in chosen]
        config.hook.pytest_deselected(items=others)
    for item in items:
        only = item.get_closest_marker("only_on")
        if only is not None and DATABASE not in only.args:
            reason = only.kwargs["reason"]
            item.add_marker(pytest.mark.skip(reason=f"only on {', '.join(only.args)}: {reason}"))
        once = item.get_closest_marker("once")
        if once is not None and os.environ.get("GENEVA_TEST_SECOND_ENVIRONMENT") == "1":
            reason = once.kwargs["reason"]
            item.add_marker(pytest.mark.skip(reason=f"in the first environment only: {reason}"))


@pytest.fixture(autouse=True)
def _no_heartbeat_outlives_its_test() -> Iterator[None]:
    """A beat finds its row gone with the test's other rows, and would write another into the next test."""
    yield
    from geneva_drive.execution import heartbeat

    if heartbeat._running:
        heartbeat.stop_all()


@pytest.fixture
def database() -> str:
    """The database that this run is on: sqlite, postgresql, mysql or mariadb."""
    return DATABASE


@pytest.fixture
def child_environment() -> Callable[[], dict[str, str]]:
    """The environment for a process that a test starts: it uses this test's databases.

    Given in a ``TransactionTestCase`` only: what a plain test case writes is seen by no other process.
    """

    def environment() -> dict[str, str]:
        names = {alias: str(connections[alias].settings_dict["NAME"]) for alias in connections}
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "GENEVA_TEST_NAMES": json.dumps(names),
            # A child is no pytest-xdist worker, whatever started it.
            "PYTEST_XDIST_WORKER": "",
        }

    return environment


def _flush_by_delete(self: Any, style: Any, tables: Any, **_options: Any) -> list[str]:
    # TRUNCATE makes new files for each table and its indexes, which takes PostgreSQL longer than most tests
    # take. Foreign keys are deferred, so the order does not matter.
    return [f"DELETE FROM {self.quote_name(table)};" for table in tables]


@pytest.fixture(scope="session", autouse=True)
def _quick_flush() -> Iterator[None]:
    """Empty the tables after a transactional test as fast as they are small."""
    # What it imports has to come after the settings are there.
    from tests.flushing import quick_flush

    with pytest.MonkeyPatch.context() as patch, quick_flush():
        if DATABASE == "postgresql":
            from django.db.backends.postgresql.operations import DatabaseOperations

            patch.setattr(DatabaseOperations, "sql_flush", _flush_by_delete)
        yield


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """Let PostgreSQL answer before the disk has: no test loses power."""
    if DATABASE != "postgresql":
        return
    with django_db_blocker.unblock():
        for connection in connections.all():
            if not str(connection.settings_dict["NAME"]).startswith("test_"):
                continue  # not made: no test of this run asks for it
            name = connection.ops.quote_name(connection.settings_dict["NAME"])
            with connection.cursor() as cursor:
                cursor.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
            # It holds for connections from now on.
            connection.close()
