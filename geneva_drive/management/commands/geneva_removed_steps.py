"""``manage.py geneva_removed_steps``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from geneva_drive.management.base import FAILED, OperatorCommand
from geneva_drive.reports.in_flight import removed_steps_in_flight


class Command(OperatorCommand):
    help = (
        "List the gravestones (removed steps) of all workflow classes, with the rows in flight that refer to them. A "
        "gravestone without rows can be deleted. Exit status: 0; 1 with --fail-if-in-flight and rows; 2 usage error."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--fail-if-in-flight",
            action="store_true",
            help="Exit with 1 if ongoing workflows still refer to a removed step.",
        )
        super().add_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        found = removed_steps_in_flight(options["using"])
        if options["json"]:
            rows = [{**asdict(each), "can_be_deleted": each.can_be_deleted} for each in found]
            self.write_json(rows)
        elif not found:
            self.stdout.write("No class declares a removed step.")
        else:
            for each in found:
                state = (
                    "can be deleted now"
                    if each.can_be_deleted
                    else f"{each.executions} row(s) in flight, {each.landing} workflow(s) at it"
                )
                self.stdout.write(f"{each.type}.{each.step}: {state}")
        if options["fail_if_in_flight"] and any(not each.can_be_deleted for each in found):
            raise SystemExit(FAILED)
