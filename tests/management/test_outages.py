"""A database without our tables, or none at all: one line, and a status of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import OperationalError, connection

from geneva_drive.management.base import DatabaseCommand
from geneva_drive.models import StepExecution, Workflow
from tests.test_reference import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.django_db(transaction=True)

CALLS = [
    ("geneva_list",),
    ("geneva_show", "1"),
    ("geneva_signal", "1", "name"),
    ("geneva_pause", "--state", "ready", "--no-input"),
    ("geneva_resume", "--state", "paused", "--dry-run"),
    ("geneva_resume_at", "one", "1"),
    ("geneva_skip", "1"),
    ("geneva_cancel", "1"),
    ("geneva_reschedule", "now", "1"),
    ("geneva_removed_steps", "--fail-if-in-flight"),
    ("geneva_predeploy",),
    ("geneva_housekeeping",),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_missing_tables_are_one_line(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, call: tuple[str, ...]
) -> None:
    monkeypatch.setattr(Workflow._meta, "db_table", "geneva_drive_not_there")
    monkeypatch.setattr(StepExecution._meta, "db_table", "geneva_drive_not_there_either")
    answer = command(*call)
    assert answer.status == 2
    assert answer.err == "Tables of geneva_drive are missing in 'default': run manage.py migrate."


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_an_unavailable_database_is_one_line(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, call: tuple[str, ...]
) -> None:
    def refuse(*_args: Any, **_options: Any) -> None:
        raise OperationalError("connection refused\nIs the server running?")

    with monkeypatch.context() as patched:
        patched.setattr(connection, "ensure_connection", refuse)
        patched.setattr(connection, "cursor", refuse)
        answer = command(*call)
    assert answer.status == 2
    assert answer.err == "The database 'default' is unavailable: connection refused"


def test_an_error_that_is_neither_keeps_its_traceback(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any) -> None:
        raise OperationalError("a bug")

    monkeypatch.setattr("geneva_drive.management.commands.geneva_list.Command.select", fail)
    with pytest.raises(OperationalError, match="a bug"):
        command("geneva_list")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_of_that_kind(name: str) -> None:
    from django.core.management import load_command_class

    assert isinstance(load_command_class("geneva_drive", name), DatabaseCommand)
