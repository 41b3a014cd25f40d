"""What all commands share: their options, exit statuses, and few words where the database fails."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError, OperationalError, connections, router

from geneva_drive import clock
from geneva_drive.definition.registry import registry
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.doctor import MODELS, missing_tables
from geneva_drive.reports.selection import Selection, errors_named
from geneva_drive.states import ONGOING, WorkflowState

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


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def duration(text: str) -> timedelta:
    """Read ``30m``, ``2h``, ``3d``; a bare number is seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration. Write 90s, 30m, 2h, 3d or 1w.")
    return timedelta(**{_UNITS[match[2] or "s"]: float(match[1])})


def add_filters(parser: CommandParser) -> None:
    """Add the options that choose workflows."""
    group = parser.add_argument_group("which workflows")
    group.add_argument("--type", help="Of this class, as app_label.ClassName.")
    group.add_argument(
        "--state", action="append", choices=WorkflowState.values, help="In this state; may be repeated."
    )
    group.add_argument("--step", help="That stand at this step.")
    group.add_argument(
        "--hero",
        metavar="HERO",
        help="Of this object: app.model:key, for example shop.order:42, or a key alone.",
    )
    group.add_argument("--error", metavar="CLASS", help="Paused by an error of this class.")
    group.add_argument("--queue", help="Whose next step is on this queue.")
    group.add_argument(
        "--overdue",
        nargs="?",
        const=timedelta(0),
        type=duration,
        metavar="DURATION",
        help="Ready and overdue, by more than DURATION (30m, 2h, 3d) if given.",
    )
    group.add_argument(
        "--waiting",
        nargs="?",
        const=timedelta(0),
        type=duration,
        metavar="DURATION",
        help="Waiting for a signal, for longer than DURATION if given.",
    )
    group.add_argument(
        "--created", type=duration, metavar="DURATION", help="Started within the last DURATION."
    )
    group.add_argument(
        "--moved",
        type=duration,
        metavar="DURATION",
        help="Finished, canceled or paused within the last DURATION.",
    )
    group.add_argument(
        "--undeclared", action="store_true", help="At a step or of a class that this code lacks."
    )


def selection_of(options: dict[str, Any], using: str) -> Selection:
    """Return what the options ask for."""

    def since(ago: timedelta | None) -> datetime | None:
        return None if ago is None else clock.now(using) - ago

    return Selection(
        type=options["type"],
        states=tuple(options["state"] or ()),
        step=options["step"],
        hero=options["hero"],
        error=options["error"],
        queue=options["queue"],
        overdue=options["overdue"],
        waiting_longer=options["waiting"],
        created_after=since(options["created"]),
        moved_after=since(options["moved"]),
        undeclared=options["undeclared"],
    )


class SelectingCommand(LookingCommand):
    """A command about some workflows."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_filters(parser)

    def select(self, options: dict[str, Any], using: str) -> Any:
        """Return the queryset that the filters describe; refuse what nothing can ever match."""
        selection = selection_of(options, using)
        if selection.type:
            _check_type(selection.type, using)
        if selection.step:
            _check_step(selection.step, selection.type, using)
        if selection.error and not errors_named(using, selection.error):
            self.stderr.write(f"No attempt has ended with an error of a class {selection.error!r}.")
        try:
            return selection.apply(Workflow.objects.using(using), using)
        except ValueError as error:
            raise CommandError(f"--hero {error}", returncode=MISUSE) from error


def _check_type(label: str, using: str) -> None:
    if registry.get(label) is not None or Workflow.objects.using(using).filter(type=label).exists():
        return
    known = ", ".join(cls._geneva.label for cls in registry.all()) or "none"
    raise CommandError(
        f"--type {label}: no class and no workflow has this type. Declared are: {known}.", returncode=MISUSE
    )


def _check_step(name: str, label: str | None, using: str) -> None:
    rows, classes = Workflow.objects.using(using), registry.all()
    if label:
        known = registry.get(label)
        rows = rows.of_type(label)
        classes = tuple(cls for cls in classes if known is not None and issubclass(cls, known))
    if any(cls.steps.resolve(name) is not None for cls in classes):
        return
    if rows.filter(next_step_name=name, state__in=ONGOING).exists():
        return
    where = f"{label} has" if label else "no class has"
    steps = ", ".join(dict.fromkeys(each for cls in classes for each in cls.steps.names)) if label else ""
    raise CommandError(
        f"--step {name}: {where} {'no ' if label else 'a '}step of this name, and no workflow stands at one."
        + (f" Declared are: {steps}." if steps else ""),
        returncode=MISUSE,
    )
