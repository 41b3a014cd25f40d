"""Which workflows a command is about: the filters, and what is a typing error in them."""

from __future__ import annotations

import argparse
import re
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from geneva_drive import clock
from geneva_drive.definition.registry import registry
from geneva_drive.management.base import MISUSE, LookingCommand
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.selection import Selection, errors_named
from geneva_drive.states import ONGOING, WorkflowState

__all__ = ["SelectingCommand", "duration", "selection_of"]

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
        help="Parked for a signal, for longer than DURATION if given.",
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
        "--stranded", action="store_true", help="At a step or of a class that this code lacks."
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
        stranded=options["stranded"],
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
