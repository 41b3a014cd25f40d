"""``manage.py geneva_list``."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from geneva_drive import clock
from geneva_drive.management.base import MISUSE, SelectingCommand, workflow_key
from geneva_drive.management.output import show_table
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.wording import activity, in_words, whole_seconds
from geneva_drive.states import ACTIVE, ONGOING, WorkflowState

_COLUMNS = ("id", "type", "hero", "state", "step", "when", "error", "age")


class Command(SelectingCommand):
    help = (
        "List workflows, the newest first; only ongoing ones unless --all or --state is given. Exit status: 0, also "
        "when there is none; 2 usage error."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--all", action="store_true", help="Include finished and canceled ones.")
        parser.add_argument("--limit", type=int, default=50, help="How many. Default: 50.")
        parser.add_argument(
            "--before",
            metavar="ID",
            help="Show workflows below this id (see the last line of the list before).",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        using = options["using"]
        limit: int = options["limit"]
        if limit < 1:
            raise CommandError(f"--limit {limit}: give 1 or more.", returncode=MISUSE)
        rows = self.select(options)
        if not options["all"] and not options["state"]:
            rows = rows.filter(state__in=ONGOING)
        if options["before"]:
            rows = rows.filter(pk__lt=workflow_key(options["before"]))
        found = list(rows.defer("metadata", "job_options").order_by("-pk")[: limit + 1])
        more, found = len(found) > limit, found[:limit]
        lines = self._describe(found, using)
        if options["json"]:
            self.write_json({"workflows": lines, "more": more})
            return
        if not lines:
            self.stdout.write("No workflow matches. Finished and canceled ones are listed with --all.")
            return
        show_table(self.stdout, _COLUMNS, [[str(line[name] or "") for name in _COLUMNS] for line in lines])
        if more:
            self.stdout.write(f"… more: --before {lines[-1]['id']}")

    def _describe(self, found: list[Workflow], using: str) -> list[dict[str, Any]]:
        now = clock.now(using)
        keys = [workflow.pk for workflow in found]
        executions = StepExecution.objects.using(using).filter(workflow_id__in=keys)
        active = {
            each.workflow_id: each for each in executions.filter(state__in=ACTIVE).defer("error_traceback")
        }
        paused = [workflow.pk for workflow in found if workflow.state == WorkflowState.PAUSED]
        errors = Workflow.objects.using(using).filter(pk__in=paused).latest_errors()
        return [
            {
                "id": workflow.pk,
                "type": workflow.type,
                "hero": workflow.hero_label,
                "state": str(workflow.state),
                "step": workflow.next_step_name,
                "when": activity(active[workflow.pk], now) if workflow.pk in active else "",
                "error": (errors.get(workflow.pk) or "").rsplit(".", 1)[-1],
                "age": in_words(whole_seconds(now - clock.utc(workflow.created_at))),
                **_moments(workflow, active.get(workflow.pk)),
            }
            for workflow in found
        ]


def _moments(workflow: Workflow, active: StepExecution | None) -> dict[str, str | None]:
    """Return what scripts compute with; those of the active execution are None without one."""
    moments = {
        "created_at": workflow.created_at,
        "transitioned_at": workflow.transitioned_at,
        "scheduled_for": None if active is None else active.scheduled_for,
        "started_at": None if active is None else active.started_at,
        "waiting_since": None if active is None else active.waiting_since,
    }
    return {name: None if at is None else clock.utc(at).isoformat() for name, at in moments.items()}
