"""What the commands share: choosing workflows, acting on them, saying how it went."""

from __future__ import annotations

import argparse
import getpass
import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections, router

from geneva_drive import clock
from geneva_drive.exceptions import GenevaDriveError
from geneva_drive.models.workflow import Workflow
from geneva_drive.selecting import Selection
from geneva_drive.states import WorkflowState

__all__ = [
    "FAILED",
    "MISUSE",
    "ActionCommand",
    "LookingCommand",
    "SelectingCommand",
    "alias_of_option",
    "duration",
    "workflow_key",
]

FAILED = 1
"""Exit status: some rows failed."""
MISUSE = 2
"""Exit status: wrong use; nothing was done."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def duration(text: str) -> timedelta:
    """Read ``30m``, ``2h``, ``3d``; a bare number is seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration. Write 90s, 30m, 2h, 3d or 1w.")
    return timedelta(**{_UNITS[match[2] or "s"]: float(match[1])})


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


def select(options: dict[str, Any], using: str) -> Any:
    """Return the queryset that the filters describe."""
    try:
        return selection_of(options, using).apply(Workflow.objects.using(using), using)
    except ValueError as error:
        raise CommandError(f"--hero {error}", returncode=MISUSE) from error


class LookingCommand(BaseCommand):
    """A command for operators."""

    requires_system_checks: list[str] = []  # a command for emergencies must run when a check complains

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Write JSON.")
        parser.add_argument("--using", metavar="ALIAS", help="The database. Default: what the routers say.")

    def write_json(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, default=str, ensure_ascii=False))


class SelectingCommand(LookingCommand):
    """A command about some workflows."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_filters(parser)


class ActionCommand(SelectingCommand):
    """A command that does one thing to some workflows, named by ids or by filters."""

    verb = ""
    """What it does, for messages: "pause"."""
    done = ""
    """What has been done: "paused"."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("ids", nargs="*", metavar="ID", help="Workflows; leave out to choose by filters.")
        super().add_arguments(parser)
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be done.")
        parser.add_argument(
            "--no-input", "--noinput", action="store_false", dest="interactive", help="Do not ask."
        )
        parser.add_argument("--by", help="Who does it, for the record. Default: this host's user.")
        parser.add_argument("--reason", default="", help="Why, for the record.")

    def act(self, workflow: Workflow, options: dict[str, Any]) -> None:
        """Do it to one workflow."""
        raise NotImplementedError

    def describe(self, options: dict[str, Any]) -> str:  # noqa: ARG002 - for subclasses
        """Return what would be done, to put before "N workflows"."""
        return self.verb

    def prepare(self, options: dict[str, Any]) -> None:
        """Refuse wrong options before anything is looked up."""

    def handle(self, *_args: Any, **options: Any) -> None:
        using = alias_of_option(options["using"])
        self.prepare(options)
        options["by"] = options["by"] or _host_user()
        keys = self._keys(options, using)
        if options["dry_run"]:
            self._report_dry_run(keys, options)
            return
        if not options["ids"]:
            self._confirm(len(keys), options)
        results = list(self._each(keys, options, using))
        failed = [result for result in results if result["error"] is not None]
        if options["json"]:
            self.write_json({"done": len(results) - len(failed), "failed": len(failed), "results": results})
        else:
            for result in failed:
                self.stderr.write(f"{result['id']}: {result['error']}")
            self.stdout.write(f"{len(results) - len(failed)} {self.done}, {len(failed)} failed.")
        if failed:
            raise SystemExit(FAILED)

    def _keys(self, options: dict[str, Any], using: str) -> list[Any]:
        if options["ids"] and selection_of(options, using):
            raise CommandError("Give ids or filters, not both.", returncode=MISUSE)
        if options["ids"]:
            return [workflow_key(each) for each in options["ids"]]
        if not selection_of(options, using):
            raise CommandError(
                f"Which workflows? Give ids or filters; see geneva_{self.verb} --help.", returncode=MISUSE
            )
        return list(select(options, using).order_by("pk").values_list("pk", flat=True))

    def _report_dry_run(self, keys: list[Any], options: dict[str, Any]) -> None:
        if options["json"]:
            self.write_json({"would": self.describe(options), "ids": keys})
            return
        self.stdout.write(f"Would {self.describe(options)} {len(keys)} workflow(s).")
        for key in keys[:20]:
            self.stdout.write(f"  {key}")
        if len(keys) > 20:
            self.stdout.write(f"  … and {len(keys) - 20} more")

    def _confirm(self, count: int, options: dict[str, Any]) -> None:
        if not options["interactive"] or not count:
            return
        if not sys.stdin.isatty():
            raise CommandError(
                f"This would {self.describe(options)} {count} workflow(s), and there is nobody to ask. Add "
                "--no-input, or --dry-run to look first.",
                returncode=MISUSE,
            )
        if input(f"{self.describe(options)} {count} workflow(s)? [y/N] ").strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was done.", returncode=MISUSE)

    def _each(self, keys: list[Any], options: dict[str, Any], using: str) -> Iterator[dict[str, Any]]:
        show = self._progress(len(keys), options)
        for number, key in enumerate(keys, 1):
            workflow = Workflow.objects.using(using).filter(pk=key).first()
            error: str | None = None
            if workflow is None:
                error = f"there is no workflow {key} in {using!r}"
            else:
                try:
                    self.act(workflow, options)
                except GenevaDriveError as refused:
                    error = str(refused)
            show(number)
            yield {"id": key, "error": error, "state": workflow.state if workflow is not None else None}

    def _progress(self, total: int, options: dict[str, Any]) -> Callable[[int], None]:
        def show(number: int) -> None:
            if total >= 200 and number % 100 == 0 and not options["json"]:
                self.stderr.write(f"{number} of {total}")

        return show


def _host_user() -> str:
    try:
        return f"{getpass.getuser()} (command line)"
    except (KeyError, OSError):
        return "command line"
