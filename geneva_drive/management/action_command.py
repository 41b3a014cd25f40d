"""The base of the commands that act on workflows: which ones, a confirmation or dry run, and the results."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.management.base import CommandError, CommandParser

from geneva_drive.exceptions import GenevaDriveError
from geneva_drive.lifecycle import allowed
from geneva_drive.management.base import FAILED, MISUSE, SelectingCommand, workflow_key
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ACTIVE

_AT_ONCE = 500
"""Workflows that a dry run reads with one query."""

_NAMED = 20
"""Workflows that a dry run lists."""


@dataclass(frozen=True)
class _Result:
    key: Any
    state: str | None
    error: str | None
    label: str

    @property
    def line(self) -> str:
        # Most errors begin with the workflow.
        named = self.error is not None and self.error.startswith(f"{self.label} ")
        return str(self.error) if named else f"{self.key}: {self.error}"

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.key, "error": self.error, "state": self.state}


class ActionCommand(SelectingCommand):
    """A command that does one thing to workflows, which are given by ids or by filters."""

    control = ""
    """The verb, as `allowed.RULES` names it; also the name of the workflow's method."""
    done = ""
    """What was done, for messages: "paused"."""

    def add_arguments(self, parser: CommandParser) -> None:
        # Without a default, argparse would say that ids are required.
        parser.add_argument(
            "ids", nargs="*", default=[], metavar="ID", help="Workflows; leave out to choose by filters."
        )
        super().add_arguments(parser)
        parser.add_argument(
            "--dry-run", action="store_true", help="Only report what would be done, and what would fail."
        )
        parser.add_argument(
            "--no-input",
            "--noinput",
            action="store_false",
            dest="interactive",
            help="Do not ask for confirmation.",
        )
        parser.add_argument("--by", help="Name to record as the operator. Default: the user on this host.")
        parser.add_argument("--reason", default="", help="Reason to record.")

    def describe(self, options: dict[str, Any]) -> str:  # noqa: ARG002 - for subclasses
        """Return what would be done, as the beginning of "pause 3 workflow(s)"."""
        return self.control

    def arguments(self, options: dict[str, Any]) -> tuple[Any, ...]:  # noqa: ARG002
        """Return the arguments of the workflow's method; refuse wrong options."""
        return ()

    def handle(self, *_args: Any, **options: Any) -> None:
        arguments = self.arguments(options)
        keys = self._keys(options)
        if options["dry_run"]:
            self._dry_run(keys, options)
            return
        if not options["ids"]:
            self._confirm(len(keys), options)
        results = list(self._act(keys, arguments, options))
        failed = [result for result in results if result.error is not None]
        done = len(results) - len(failed)
        if options["json"]:
            described = [result.as_dict() for result in results]
            self.write_json({"done": done, "failed": len(failed), "results": described})
        else:
            for result in failed:
                self.stderr.write(result.line)
            self.stdout.write(f"{done} {self.done}, {len(failed)} failed.")
        if failed:
            raise SystemExit(FAILED)

    def _keys(self, options: dict[str, Any]) -> list[Any]:
        has_filters = bool(self.selection(options))
        if options["ids"] and has_filters:
            raise CommandError("Give ids or filters, not both.", returncode=MISUSE)
        if options["ids"]:
            return list(dict.fromkeys(workflow_key(each) for each in options["ids"]))
        if not has_filters:
            command = type(self).__module__.rpartition(".")[2]
            raise CommandError(
                f"Which workflows? Give ids or filters; see {command} --help.", returncode=MISUSE
            )
        rows = self.select(options)
        if not options["state"]:
            rows = rows.filter(allowed.condition(self.control, options["using"]))
        return list(rows.order_by("pk").values_list("pk", flat=True))

    def _confirm(self, count: int, options: dict[str, Any]) -> None:
        if not options["interactive"] or not count:
            return
        would = self.describe(options)
        if not sys.stdin.isatty():
            raise CommandError(
                f"This would {would} {count} workflow(s), and there is no terminal to confirm it. Add --no-input, or "
                "--dry-run to look first.",
                returncode=MISUSE,
            )
        question = f"{would[:1].upper()}{would[1:]} {count} workflow(s)? [y/N] "
        if input(question).strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was done.", returncode=MISUSE)

    def _act(self, keys: list[Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Iterator[_Result]:
        def act(workflow: Workflow) -> None:
            getattr(workflow, self.control)(
                *arguments, by=options["by"] or _host_user(), reason=options["reason"]
            )

        for number, key in enumerate(keys, 1):
            workflow = Workflow.objects.using(options["using"]).filter(pk=key).first()
            result = _try(key, workflow, act, options["using"])
            if len(keys) >= 200 and number % 100 == 0 and not options["json"]:
                self.stderr.write(f"{number} of {len(keys)}")
            yield result

    def _dry_run(self, keys: list[Any], options: dict[str, Any]) -> None:
        results = list(self._foresee(keys, options))
        good = [result.key for result in results if result.error is None]
        bad = [result for result in results if result.error is not None]
        would = self.describe(options)
        if options["json"]:
            self.write_json({"would": would, "ids": good, "failed": [result.as_dict() for result in bad]})
        else:
            failing = f", {len(bad)} would fail." if bad else "."
            self.stdout.write(f"Would {would} {len(good)} workflow(s){failing}")
            for key in good[:_NAMED]:
                self.stdout.write(f"  {key}")
            if len(good) > _NAMED:
                self.stdout.write(f"  … and {len(good) - _NAMED} more")
            for result in bad:
                self.stderr.write(result.line)
        if bad:
            raise SystemExit(FAILED)

    def _foresee(self, keys: list[Any], options: dict[str, Any]) -> Iterator[_Result]:
        using = options["using"]
        for first in range(0, len(keys), _AT_ONCE):
            chunk = keys[first : first + _AT_ONCE]
            workflows = Workflow.objects.using(using).in_bulk(chunk)
            rows = StepExecution.objects.using(using).filter(workflow_id__in=chunk, state__in=ACTIVE)
            active = {each.workflow_id: each for each in rows.only("workflow_id", "step_name", "state")}
            for key in chunk:
                check = partial(allowed.check, self.control, active=active.get(key), step=options.get("at"))
                yield _try(key, workflows.get(key), check, using)


def _try(key: Any, workflow: Workflow | None, attempt: Callable[[Workflow], Any], using: str) -> _Result:
    if workflow is None:
        return _Result(key, None, f"there is no workflow {key} in {using!r}", "")
    error: str | None = None
    try:
        attempt(workflow)
    except GenevaDriveError as refused:
        error = str(refused)
    return _Result(key, workflow.state, error, f"{workflow.type} {key}")


def _host_user() -> str:
    try:
        return f"{getpass.getuser()} (command line)"
    except (KeyError, OSError):
        return "command line"
