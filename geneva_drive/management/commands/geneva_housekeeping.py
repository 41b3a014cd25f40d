"""Run all chores of housekeeping once: ``manage.py geneva_housekeeping``."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from geneva_drive.housekeeping import Counts, forget_dispatched, housekeep
from geneva_drive.management.base import DatabaseCommand

_LABELS = {
    "recovered": "executions recovered",
    "fed": "executions dispatched shortly before they are due",
    "redispatched": "executions dispatched again",
    "woken": "waiting executions moved on",
    "expired": "waits for signals expired",
    "processes": "dead processes removed",
    "workflows": "workflows deleted",
    "executions": "executions deleted",
    "signals": "signals deleted",
    "operator_actions": "operator actions deleted",
    "protected": "workflows kept, because rows of the project protect them",
}


class Command(DatabaseCommand):
    help = (
        "Run every chore of housekeeping once: recover steps of dead processes, dispatch steps that are due soon, "
        "dispatch overdue steps again, apply signal timeouts and wake steps that no longer need to "
        "wait, delete old workflows. Safe to run at any time, "
        "and several times in parallel."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print the counts as one JSON object.")
        parser.add_argument(
            "--forget-dispatched",
            action="store_true",
            help="First mark every step as not dispatched, so that the new dispatcher gets it. Use it once after "
            "DISPATCHER has changed. Jobs that are left with the old dispatcher do no harm.",
        )
        super().add_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        using = options["using"]

        def progress(counts: Counts) -> None:
            self.stderr.write(f"{counts.workflows} workflows deleted so far")

        if options["forget_dispatched"]:
            forgotten = forget_dispatched(using)
            self.stderr.write(f"{forgotten} executions marked as not dispatched")
        quiet = options["json"] or options["verbosity"] == 0
        counts = housekeep(using, progress=None if quiet else progress)
        if options["json"]:
            self.stdout.write(json.dumps(counts.as_dict()))
            return
        for name, count in counts.as_dict().items():
            if count or name in ("recovered", "workflows"):
                self.stdout.write(f"{count} {_LABELS[name]}")
