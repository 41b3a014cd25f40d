"""``manage.py geneva_predeploy``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from geneva_drive.management.base import FAILED, OperatorCommand
from geneva_drive.predeploy import look_ahead

_TITLES = {
    "undeclared": "Undeclared",
    "deferred": "Deferred",
    "repeated": "Repeated",
    "skipped": "Skipped",
    "deletable": "Deletable",
}


class Command(OperatorCommand):
    help = (
        "Report what this code would do to the workflows in flight. Run it with the new code against the live "
        "database, before the deploy. It only reads. Exit status: 0 no step or class in flight is undeclared, 1 one is "
        "(with --strict, also if a step would be deferred or repeated), 2 usage error."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--strict", action="store_true", help="Exit with 1 for warnings, too.")
        super().add_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        found = look_ahead(options["using"])
        if options["json"]:
            effects = [asdict(effect) for effect in found.effects]
            self.write_json(
                {"undeclared": found.has_undeclared, "warnings": found.has_warnings, "effects": effects}
            )
        else:
            for kind, title in _TITLES.items():
                for effect in found.of(kind):
                    self.stdout.write(f"{title}: {effect.type}: {effect.message}")
                    if effect.hint:
                        self.stdout.write(f"    {effect.hint}")
            if not found.effects:
                self.stdout.write("No in-flight workflow is affected.")
        if found.has_undeclared or (options["strict"] and found.has_warnings):
            raise SystemExit(FAILED)
