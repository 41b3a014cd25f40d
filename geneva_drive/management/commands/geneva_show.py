"""``manage.py geneva_show``."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.forms.models import model_to_dict

from geneva_drive.management.base import OperatorCommand
from geneva_drive.management.output import show_timeline
from geneva_drive.models.records import Signal
from geneva_drive.reports.explain import explain
from geneva_drive.reports.history import Timeline, timeline_of

_MOST_SIGNALS = 200


class Command(OperatorCommand):
    help = (
        "Show one workflow: why it is where it is, its steps and their states, every attempt, its signals, and the "
        "operator actions. Exit status: 0, 1 there is no such workflow, 2 usage error."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="The workflow's id.")
        super().add_arguments(parser)
        parser.add_argument("--errors", action="store_true", help="Show whole messages and tracebacks.")

    def handle(self, *_args: Any, **options: Any) -> None:
        workflow = self.workflow(options, "id")
        timeline = timeline_of(workflow)
        rows = Signal.objects.using(options["using"]).filter(workflow_id=workflow.pk)
        signals = list(rows.latest_first()[:_MOST_SIGNALS])[::-1]
        if options["json"]:
            self.write_json(_value(timeline, signals))
        else:
            show_timeline(self.stdout, timeline, signals, errors=options["errors"])


def _value(timeline: Timeline, signals: list[Signal]) -> dict[str, Any]:
    workflow = timeline.workflow
    return {
        "id": workflow.pk,
        "type": workflow.type,
        "hero": workflow.hero_label,
        "state": str(workflow.state),
        "next_step": workflow.next_step_name,
        "explanation": explain(workflow),
        "steps": [
            {
                "name": line.name,
                "status": line.status,
                "formerly": line.former_name,
                "attempts": len(line.attempts),
            }
            for line in timeline.steps
        ],
        "attempts": [_row(each) for each in timeline.attempts],
        "signals": [_row(each) for each in signals],
        "actions": [_row(each) for each in timeline.actions],
    }


def _row(instance: Any) -> dict[str, Any]:
    return model_to_dict(instance) | {"id": instance.pk}
