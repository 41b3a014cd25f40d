"""One pass of recovery and clean-up: ``manage.py geneva_housekeeping``."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from geneva_drive.housekeeping import Counts, forget_dispatched, housekeep
from geneva_drive.management.base import DatabaseCommand, alias_of_option

_LABELS = {
    "recovered": "executions recovered",
    "fed": "executions dispatched near their time",
    "redispatched": "executions dispatched again",
    "woken": "waiting executions moved on",
    "expired": "signals not waited for any longer",
    "processes": "dead processes removed",
    "workflows": "workflows deleted",
    "executions": "executions deleted",
    "signals": "signals deleted",
    "operator_actions": "operator actions deleted",
    "protected": "workflows kept, protected by the project's rows",
}


class Command(DatabaseCommand):
    help = (
        "One pass of everything that keeps workflows moving and tables small: recover what dead processes left, "
        "dispatch what comes near its time, dispatch again what is overdue, delete what ended before the "
        "retention. Safe to run at any time, beside workers and beside itself."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print the counts as one JSON object.")
        parser.add_argument(
            "--forget-dispatched",
            action="store_true",
            help="First forget what was dispatched, so that it is dispatched anew: once, after DISPATCHER was "
            "changed. Jobs that still lie with the old one change nothing.",
        )
        parser.add_argument("--using", metavar="ALIAS", help="The database. Default: what the routers say.")

    def handle(self, *_args: Any, **options: Any) -> None:
        using = alias_of_option(options["using"])

        def progress(counts: Counts) -> None:
            self.stderr.write(f"{counts.workflows} workflows deleted so far")

        if options["forget_dispatched"]:
            forgotten = forget_dispatched(using)
            self.stderr.write(f"{forgotten} dispatched executions forgotten")
        quiet = options["json"] or options["verbosity"] == 0
        counts = housekeep(using, progress=None if quiet else progress)
        if options["json"]:
            self.stdout.write(json.dumps(counts.as_dict()))
            return
        for name, count in counts.as_dict().items():
            if count or name in ("recovered", "workflows"):
                self.stdout.write(f"{count} {_LABELS[name]}")
