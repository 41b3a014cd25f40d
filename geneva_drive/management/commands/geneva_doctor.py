"""``manage.py geneva_doctor``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from geneva_drive.doctor import examine
from geneva_drive.management.selection import FAILED, alias_of_option


class Command(BaseCommand):
    help = (
        "Look at tables, hero key, settings, dispatcher, processes, clocks and rows, and name a remedy for each "
        "finding. It only reads. Exit status: 0 no error, 1 errors (with --strict also warnings), 2 wrong use."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--strict", action="store_true", help="Warnings count, too.")
        parser.add_argument("--json", action="store_true", help="Write JSON.")
        parser.add_argument("--using", help="The database alias. Default: what the routers say.")

    def handle(self, *_args: Any, **options: Any) -> None:
        findings = examine(alias_of_option(options["using"]))
        if options["json"]:
            self.stdout.write(json.dumps([asdict(finding) for finding in findings]))
        else:
            for finding in findings:
                self.stdout.write(f"[{finding.level}] {finding.subject}: {finding.message}")
                if finding.remedy:
                    self.stdout.write(f"    {finding.remedy}")
        bad = {"error", "warning"} if options["strict"] else {"error"}
        if any(finding.level in bad for finding in findings):
            raise SystemExit(FAILED)
