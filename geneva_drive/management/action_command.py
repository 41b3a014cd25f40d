"""What the commands that do something share: to which workflows, whether it may, and how it went."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.core.management.base import CommandError, CommandParser

from geneva_drive.exceptions import GenevaDriveError
from geneva_drive.lifecycle import allowed
from geneva_drive.management.base import (
    FAILED,
    MISUSE,
    SelectingCommand,
    alias_of_option,
    selection_of,
    workflow_key,
)
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ACTIVE

_AT_ONCE = 500  # rows that a dry run reads with one query
_NAMED = 20  # of those that would be done


@dataclass(frozen=True)
class _Result:
    key: Any
    state: str | None
    error: str | None
    label: str = ""

    @property
    def line(self) -> str:
        error = self.error or ""
        # Most errors begin with the workflow, and its id needs no saying twice.
        return error if self.label and error.startswith(self.label) else f"{self.key}: {error}"

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.key, "error": self.error, "state": self.state}


class ActionCommand(SelectingCommand):
    """A command that does one thing to some workflows, named by ids or by filters."""

    verb = ""
    """What it does, for messages: "pause"."""
    done = ""
    """What has been done: "paused"."""
    control = ""
    """The verb, as `allowed.RULES` names it."""

    def add_arguments(self, parser: CommandParser) -> None:
        # With a default, or argparse would call what may be left out required.
        parser.add_argument(
            "ids", nargs="*", default=[], metavar="ID", help="Workflows; leave out to choose by filters."
        )
        super().add_arguments(parser)
        parser.add_argument(
            "--dry-run", action="store_true", help="Only say what would be done, and what would fail."
        )
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
            self._dry_run(keys, options, using)
            return
        if not options["ids"]:
            self._confirm(len(keys), options)
        results = list(self._each(keys, options, using))
        failed = [result for result in results if result.error is not None]
        if options["json"]:
            told = [result.as_dict() for result in results]
            self.write_json({"done": len(results) - len(failed), "failed": len(failed), "results": told})
        else:
            for result in failed:
                self.stderr.write(result.line)
            self.stdout.write(f"{len(results) - len(failed)} {self.done}, {len(failed)} failed.")
        if failed:
            raise SystemExit(FAILED)

    def _keys(self, options: dict[str, Any], using: str) -> list[Any]:
        if options["ids"] and selection_of(options, using):
            raise CommandError("Give ids or filters, not both.", returncode=MISUSE)
        if options["ids"]:
            return list(dict.fromkeys(workflow_key(each) for each in options["ids"]))
        if not selection_of(options, using):
            command = type(self).__module__.rpartition(".")[2]
            raise CommandError(
                f"Which workflows? Give ids or filters; see {command} --help.", returncode=MISUSE
            )
        rows = self.select(options, using)
        if not options["state"]:
            rows = rows.filter(allowed.condition(self.control, using))
        return list(rows.order_by("pk").values_list("pk", flat=True))

    def _dry_run(self, keys: list[Any], options: dict[str, Any], using: str) -> None:
        results = list(self._foreseen(keys, options, using))
        good = [result.key for result in results if result.error is None]
        bad = [result for result in results if result.error is not None]
        would = self.describe(options)
        if options["json"]:
            self.write_json({"would": would, "ids": good, "failed": [result.as_dict() for result in bad]})
        else:
            self.stdout.write(
                f"Would {would} {len(good)} workflow(s)" + (f", {len(bad)} would fail." if bad else ".")
            )
            for key in good[:_NAMED]:
                self.stdout.write(f"  {key}")
            if len(good) > _NAMED:
                self.stdout.write(f"  … and {len(good) - _NAMED} more")
            for result in bad:
                self.stderr.write(result.line)
        if bad:
            raise SystemExit(FAILED)

    def _foreseen(self, keys: list[Any], options: dict[str, Any], using: str) -> Iterator[_Result]:
        left = iter(keys)
        while chunk := list(islice(left, _AT_ONCE)):
            workflows = Workflow.objects.using(using).in_bulk(chunk)
            rows = StepExecution.objects.using(using).filter(workflow_id__in=chunk, state__in=ACTIVE)
            active = {each.workflow_id: each for each in rows.only("workflow_id", "step_name", "state")}
            for key in chunk:
                yield self._result(
                    key,
                    workflows.get(key),
                    lambda workflow: allowed.check(
                        self.control,
                        workflow,
                        active.get(workflow.pk),  # noqa: B023
                        step=options.get("at"),
                    ),
                    using,
                )

    def _each(self, keys: list[Any], options: dict[str, Any], using: str) -> Iterator[_Result]:
        show = self._progress(len(keys), options)
        for number, key in enumerate(keys, 1):
            workflow = Workflow.objects.using(using).filter(pk=key).first()
            result = self._result(key, workflow, lambda found: self.act(found, options), using)
            show(number)
            yield result

    def _result(
        self, key: Any, workflow: Workflow | None, attempt: Callable[[Workflow], object], using: str
    ) -> _Result:
        if workflow is None:
            return _Result(key, None, f"there is no workflow {key} in {using!r}")
        error: str | None = None
        try:
            attempt(workflow)
        except GenevaDriveError as refused:
            error = str(refused)
        return _Result(key, workflow.state, error, f"{workflow.type} {key} ")

    def _confirm(self, count: int, options: dict[str, Any]) -> None:
        if not options["interactive"] or not count:
            return
        would = self.describe(options)
        if not sys.stdin.isatty():
            raise CommandError(
                f"This would {would} {count} workflow(s), and there is nobody to ask. Add --no-input, or "
                "--dry-run to look first.",
                returncode=MISUSE,
            )
        question = f"{would[:1].upper()}{would[1:]} {count} workflow(s)? [y/N] "
        if input(question).strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was done.", returncode=MISUSE)

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
