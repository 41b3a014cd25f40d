"""``manage.py geneva_doctor``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from geneva_drive.management.base import FAILED, OperatorCommand
from geneva_drive.reports.doctor import examine


class Command(OperatorCommand):
    help = (
        "Check tables, hero key, settings, dispatcher, processes, clocks and rows, with a hint for each problem. It "
        "only reads. Exit status: 0 no error, 1 errors (with --strict also warnings), 2 usage error."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--strict", action="store_true", help="Exit with 1 for warnings, too.")
        super().add_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        findings = examine(options["using"])
        if options["json"]:
            self.write_json([asdict(finding) for finding in findings])
        else:
            for finding in findings:
                self.stdout.write(f"[{finding.level}] {finding.subject}: {finding.message}")
                if finding.hint:
                    self.stdout.write(f"    {finding.hint}")
        bad = {"error", "warning"} if options["strict"] else {"error"}
        if any(finding.level in bad for finding in findings):
            raise SystemExit(FAILED)
