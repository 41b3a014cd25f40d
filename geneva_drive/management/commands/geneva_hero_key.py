"""Show and convert the type of the hero key column: ``manage.py geneva_hero_key``."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, connections

from geneva_drive.conf import settings
from geneva_drive.exceptions import HeroKeyError
from geneva_drive.management.base import MISUSE, DatabaseCommand
from geneva_drive.models import columns
from geneva_drive.models.hero_key_conversion import Examination, convert, examine

_SMALL = 50_000
"""Rows of a table that is examined without showing progress."""


class Command(DatabaseCommand):
    help = (
        "Show which type the hero key column has, which type it would get today, and why. With --to, convert it. Exit "
        "status: 0, 1 a conversion was refused, 2 usage error."
    )
    requires_system_checks: list[str] = []  # the checks report what this command fixes

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--using", metavar="ALIAS", default=DEFAULT_DB_ALIAS, help="The database.")
        parser.add_argument("--json", action="store_true", help="Write one JSON object.")
        parser.add_argument("--to", choices=columns.KINDS, help="Convert the column to this kind.")
        parser.add_argument("--dry-run", action="store_true", help="Only check whether --to is possible.")
        parser.add_argument(
            "--no-input",
            "--noinput",
            action="store_false",
            dest="interactive",
            help="Do not ask for confirmation.",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        using: str = options["using"]
        target: str | None = options["to"]
        if options["dry_run"] and target is None:
            raise CommandError("--dry-run says whether --to is possible. Add --to.", returncode=MISUSE)
        if target is None:
            self._show(using, as_json=options["json"])
        else:
            self._convert(using, target, options)

    def _show(self, using: str, *, as_json: bool) -> None:
        count = columns.count_hero_keys(using)
        real = columns.real_hero_column(connections[using])
        setting = settings.HERO_KEY_TYPE
        if as_json:
            described = {
                "database": using,
                "column": None if real is None else {"kind": real.kind, "type": real.sql_type},
                "setting": setting,
                "decision": columns.declared_kind(using),
                "reason": _reason(count, setting),
                "counts": {"uuid": count.uuids, "string": count.strings, "integer": count.integers},
                "models": [asdict(key) for key in count.models],
            }
            self.stdout.write(json.dumps(described, indent=2))
            return
        if real is None:
            self.stdout.write(f"Column: not created yet in {using!r}.")
        else:
            self.stdout.write(f"Column: {real.kind} ({real.sql_type}) in {using!r}.")
        decision = columns.declared_kind(using)
        self.stdout.write(f"Type for the current models: {decision}. {_reason(count, setting)}")
        for family in ("uuid", "string", "integer", None):
            keys = [key for key in count.models if key.family == family]
            if keys:
                self.stdout.write(f"\n{family or 'other'} ({len(keys)})")
            for key in keys:
                origin = "in the database" if key.source == "column" else "as declared, not created yet"
                self.stdout.write(f"  {key.label}: {key.sql_type} ({origin})")
        if real is not None and real.kind != decision:
            self.stdout.write(
                f"\nThe column differs from today's decision. Heroes whose key does not fit it are refused. "
                f"Convert it with --to {decision}, or keep it with "
                f'GENEVA_DRIVE["HERO_KEY_TYPE"] = "{real.kind}".'
            )

    def _convert(self, using: str, target: str, options: dict[str, Any]) -> None:
        real = columns.real_hero_column(connections[using])
        if real is None:
            raise CommandError(
                f'There is no column yet in {using!r}. Set GENEVA_DRIVE["HERO_KEY_TYPE"] = "{target}" before '
                "the first migrate.",
                returncode=MISUSE,
            )
        if real.kind == target:
            self._report(Examination(target, target), options, converted=False, text="Nothing to do")
            return
        progress = None if options["json"] else self._progress
        examination = examine(using, target, progress)
        if examination.misfit_count:
            self._report(examination, options, converted=False, text="Refused")
            raise CommandError(
                f"{examination.misfit_count} of {examination.rows} heroes cannot be converted from "
                f"{real.kind} to {target}. Nothing was changed."
            )
        if options["dry_run"]:
            self._report(examination, options, converted=False, text="Possible")
            return
        if options["interactive"] and not self._agreed(real.kind, target, examination.rows, using):
            raise CommandError("Not converted.")
        try:
            # Examines again under the lock, since rows may have been added.
            examination = convert(using, target, progress)
        except HeroKeyError as error:
            raise CommandError(f"{error} Nothing was changed.") from error
        self._report(examination, options, converted=True, text="Converted")
        self.stderr.write(
            "Restart workers and servers: running processes still use the old type of the column."
        )

    def _progress(self, done: int, total: int) -> None:
        if total > _SMALL:
            self.stderr.write(f"  examined {done:,} of {total:,} rows")

    def _agreed(self, source: str, target: str, rows: int, using: str) -> bool:
        try:
            answer = input(
                f"Convert the hero keys of {rows:,} rows in {using!r} from {source} to {target}? The table "
                "is locked meanwhile. Type yes to continue: "
            )
        except EOFError:
            raise CommandError(
                "There is no terminal to confirm it. Add --no-input.", returncode=MISUSE
            ) from None
        return answer.strip().lower() == "yes"

    def _report(
        self, examination: Examination, options: dict[str, Any], *, converted: bool, text: str
    ) -> None:
        if options["json"]:
            described = {
                "database": options["using"],
                **asdict(examination),
                "dry_run": options["dry_run"],
                "converted": converted,
            }
            self.stdout.write(json.dumps(described, indent=2))
            return
        self.stdout.write(f"{text}: {examination.source} to {examination.target}, {examination.rows:,} rows.")
        for misfit in examination.misfits:
            self.stdout.write(f"  workflow {misfit.workflow}: {misfit.hero} {misfit.reason}")
        if examination.misfit_count > len(examination.misfits):
            self.stdout.write(f"  … and {examination.misfit_count - len(examination.misfits):,} more")


def _reason(count: columns.HeroKeyCount, setting: str) -> str:
    if setting != "auto":
        return f'GENEVA_DRIVE["HERO_KEY_TYPE"] says so; counted would be {count.decision}.'
    uuids, strings, integers = count.uuids, count.strings, count.integers
    counted = f"{uuids} models with UUID keys, {strings} with text keys, {integers} with integer keys"
    rule = {
        "uuid": "UUIDs outnumber all others",
        "string": "UUIDs and text together outnumber integers",
        "bigint": "UUIDs and text together do not outnumber integers",
    }[count.decision]
    return f"{counted}: {rule}."
