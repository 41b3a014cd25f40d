"""What all commands share: their options, exit statuses, and few words where the database fails."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError, OperationalError, connections, router

from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.doctor import MODELS, missing_tables

__all__ = ["FAILED", "MISUSE", "DatabaseCommand", "LookingCommand", "alias_of_option", "workflow_key"]

FAILED = 1
"""Exit status: some rows failed."""
MISUSE = 2
"""Exit status: wrong use, or no database to work on."""

_CLOSED_PIPE = 128 + 13
"""What a shell makes of a program that SIGPIPE ended."""


def alias_of_option(using: str | None) -> str:
    """Return the alias to work on, or refuse one that is not configured."""
    if using is not None and using not in connections:
        raise CommandError(
            f"--using {using}: no such database. There are: {', '.join(connections)}.", returncode=MISUSE
        )
    return using or router.db_for_write(Workflow)


def workflow_key(text: str) -> Any:
    """Return the key that is meant, or refuse what is none."""
    try:
        return Workflow._meta.pk.to_python(text)
    except ValidationError as error:
        raise CommandError(f"{text!r} is no workflow id.", returncode=MISUSE) from error


class DatabaseCommand(BaseCommand):
    """A command that needs our tables: without them it says so in one line, and nothing else looks like it."""

    explains_outages = True
    """Whether a database that is out of reach is told in one line, too."""

    def execute(self, *args: Any, **options: Any) -> Any:
        using = options.get("using") or router.db_for_write(Workflow)
        try:
            try:
                return super().execute(*args, **options)
            finally:
                self.stdout.flush()
        except (DatabaseError, InterfaceError) as error:
            told = self._told(error, using)
            if told is None:
                raise
            raise CommandError(told, returncode=MISUSE) from error
        except BrokenPipeError:
            # Whoever read has read enough, as head does. What is left in the buffer must not fail at exit.
            if getattr(self.stdout, "_out", None) is sys.stdout:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # type: ignore[union-attr]
            raise SystemExit(_CLOSED_PIPE) from None

    def _told(self, error: Exception, using: str) -> str | None:
        """Return what to say of an error, or None for one that is a bug and keeps its traceback."""
        connection = connections[using]
        try:
            connection.ensure_connection()
            missing = missing_tables(connection)
        except (OperationalError, InterfaceError):
            if not self.explains_outages:
                return None
            lines = str(error).strip().splitlines() or [type(error).__name__]
            return f"The database {using!r} is out of reach: {lines[0]}"
        except DatabaseError:
            return None  # inside a caller's transaction that is broken already
        if not missing:
            return None
        what = (
            "The tables of geneva_drive are" if len(missing) == len(MODELS) else "Tables of geneva_drive are"
        )
        option = "" if using == "default" else f" --database {using}"
        return f"{what} missing in {using!r}: run manage.py migrate{option}."


class LookingCommand(DatabaseCommand):
    """A command for operators."""

    requires_system_checks: list[str] = []  # a command for emergencies must run when a check complains

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Write JSON.")
        parser.add_argument("--using", metavar="ALIAS", help="The database. Default: what the routers say.")

    def write_json(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, default=str, ensure_ascii=False))
