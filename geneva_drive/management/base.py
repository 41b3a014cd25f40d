"""What all commands share: options, filters, exit statuses, and one line for a database that does not answer."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from datetime import timedelta
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
"""Exit status: a usage error, or no database."""

_CLOSED_PIPE = 128 + 13
"""The exit status of a program that SIGPIPE ended."""


def workflow_key(text: str) -> Any:
    """Return the primary key that is written as ``text``."""
    try:
        return Workflow._meta.pk.to_python(text)
    except ValidationError as error:
        raise CommandError(f"{text!r} is not a workflow id.", returncode=MISUSE) from error


class DatabaseCommand(BaseCommand):
    """A command with ``--using``. Missing tables and an unavailable database are one line, not a traceback."""

    explains_outages = True
    """Whether an unavailable database is one line, too."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--using",
            metavar="ALIAS",
            help="The database. Default: the one that the database routers choose.",
        )

    def execute(self, *args: Any, **options: Any) -> Any:
        using = options.get("using") or router.db_for_write(Workflow)
        if using not in connections:
            known = ", ".join(connections)
            raise CommandError(f"--using {using}: no such database. There are: {known}.", returncode=MISUSE)
        try:
            try:
                return super().execute(*args, **options | {"using": using})
            finally:
                self.stdout.flush()
        except (DatabaseError, InterfaceError) as error:
            explanation = self._explain(error, using)
            if explanation is None:
                raise
            raise CommandError(explanation, returncode=MISUSE) from error
        except BrokenPipeError:
            # The reader has closed the pipe, as head does. What is left in the buffer must not fail at exit.
            if getattr(self.stdout, "_out", None) is sys.stdout:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # type: ignore[union-attr]
            raise SystemExit(_CLOSED_PIPE) from None

    def _explain(self, error: Exception, using: str) -> str | None:
        """Return one line about the error; None if it is a bug, which needs its traceback."""
        connection = connections[using]
        try:
            connection.ensure_connection()
            missing = missing_tables(connection)
        except (OperationalError, InterfaceError):
            if not self.explains_outages:
                return None
            lines = str(error).strip().splitlines() or [type(error).__name__]
            return f"The database {using!r} is unavailable: {lines[0]}"
        except DatabaseError:
            return None  # a caller's transaction is already broken
        if not missing:
            return None
        what = "The tables" if len(missing) == len(MODELS) else "Tables"
        option = "" if using == "default" else f" --database {using}"
        return f"{what} of geneva_drive are missing in {using!r}: run manage.py migrate{option}."


class OperatorCommand(DatabaseCommand):
    """A command with ``--json`` that runs even when a system check fails, as in an emergency."""

    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Write JSON.")
        super().add_arguments(parser)

    def write_json(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, default=str, ensure_ascii=False))

    def workflow(self, options: dict[str, Any], name: str) -> Workflow:
        """Return the workflow whose key is given as the argument ``name``."""
        key, using = workflow_key(options[name]), options["using"]
        workflow: Workflow | None = Workflow.objects.using(using).filter(pk=key).first()
        if workflow is None:
            raise CommandError(f"There is no workflow {key} in {using!r}.", returncode=FAILED)
        return workflow


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def duration(text: str) -> timedelta:
    """Read ``30m``, ``2h``, ``3d``; a bare number is seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration. Write 90s, 30m, 2h, 3d or 1w.")
    return timedelta(**{_UNITS[match[2] or "s"]: float(match[1])})


class SelectingCommand(OperatorCommand):
    """A command with filters that choose workflows."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        group = parser.add_argument_group("which workflows")
        within: dict[str, Any] = {"type": duration, "metavar": "DURATION"}
        longer = within | {"nargs": "?", "const": timedelta(0)}
        group.add_argument("--type", help="Of this class, as app_label.ClassName.")
        group.add_argument(
            "--state", action="append", choices=WorkflowState.values, help="In this state; may be repeated."
        )
        group.add_argument("--step", help="At this step.")
        group.add_argument(
            "--hero", help="Of this object: app.model:key, for example shop.order:42, or a key alone."
        )
        group.add_argument("--error", metavar="CLASS", help="Paused by an error of this class.")
        group.add_argument("--queue", help="With the next step on this queue.")
        group.add_argument(
            "--overdue", **longer, help="Ready and overdue, by more than DURATION (30m, 2h, 3d) if given."
        )
        group.add_argument(
            "--waiting", **longer, help="Waiting for a signal, for longer than DURATION if given."
        )
        group.add_argument("--created", **within, help="Started within the last DURATION.")
        group.add_argument("--moved", **within, help="Finished, canceled or paused within the last DURATION.")
        group.add_argument(
            "--undeclared", action="store_true", help="Whose step or class this code does not declare."
        )

    def selection(self, options: dict[str, Any]) -> Selection:
        """Return what the filters describe."""
        now = clock.now(options["using"])
        created, moved = options["created"], options["moved"]
        return Selection(
            type=options["type"],
            states=tuple(options["state"] or ()),
            step=options["step"],
            hero=options["hero"],
            error=options["error"],
            queue=options["queue"],
            overdue=options["overdue"],
            waiting_longer=options["waiting"],
            created_after=None if created is None else now - created,
            moved_after=None if moved is None else now - moved,
            undeclared=options["undeclared"],
        )

    def select(self, options: dict[str, Any]) -> Any:
        """Return the queryset that the filters describe; refuse a filter that can never match."""
        using, selection = options["using"], self.selection(options)
        if selection.type:
            _check_type(selection.type, using)
        if selection.step:
            _check_step(selection.step, selection.type, using)
        if selection.error and not errors_named(using, selection.error):
            self.stderr.write(f"No attempt has failed with an error of the class {selection.error!r}.")
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
    where = f"{label} has no" if label else "no class has a"
    steps = ", ".join(dict.fromkeys(each for cls in classes for each in cls.steps.names)) if label else ""
    raise CommandError(
        f"--step {name}: {where} step of this name, and no workflow is at one."
        + (f" Declared are: {steps}." if steps else ""),
        returncode=MISUSE,
    )
