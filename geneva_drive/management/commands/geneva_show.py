"""``manage.py geneva_show``."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.forms.models import model_to_dict

from geneva_drive import clock
from geneva_drive.management.selection import FAILED, MISUSE, alias_of_option
from geneva_drive.management.text import ago, in_words
from geneva_drive.models.heroes import hero_label
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports import explain
from geneva_drive.story import StepLine, Story, duration_of, tell

_MARKS = {
    "done": "✓",
    "skipped": "»",
    "failed": "✗",
    "canceled": "-",
    "current": "▶",
    "to come": "·",
    "gravestone": "†",
    "not declared": "?",
}
_STYLES = {"done": "green", "failed": "red", "current": "yellow", "not declared": "red"}


class Command(BaseCommand):
    help = (
        "Show one workflow: why it is where it is, the steps of its class with what happened at each, every "
        "attempt, and what operators did. Exit status: 0, 1 there is no such workflow, 2 wrong use."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="The workflow's id.")
        parser.add_argument("--errors", action="store_true", help="Show whole messages and tracebacks.")
        parser.add_argument("--json", action="store_true", help="Write JSON.")
        parser.add_argument("--using", help="The database alias. Default: what the routers say.")

    def handle(self, *_args: Any, **options: Any) -> None:
        using = alias_of_option(options["using"])
        try:
            key = Workflow._meta.pk.to_python(options["id"])
        except ValidationError as error:
            raise CommandError(f"{options['id']!r} is no workflow id.", returncode=MISUSE) from error
        workflow = Workflow.objects.using(using).filter(pk=key).first()
        if workflow is None:
            raise CommandError(f"There is no workflow {key} in {using!r}.", returncode=FAILED)
        story = tell(workflow)
        if options["json"]:
            self._json(story)
        else:
            self._text(story, errors=options["errors"])

    def _text(self, story: Story, *, errors: bool) -> None:
        workflow = story.workflow
        now = clock.now(workflow._state.db)
        hero = hero_label(workflow)
        print_line = _printer(self.stdout)
        print_line(f"{workflow.type} {workflow.pk}" + (f" for {hero}" if hero else ""), "bold")
        print_line(
            f"{workflow.state}, started {ago(clock.utc(workflow.created_at), now)}. {explain(workflow)}", ""
        )
        print_line("", "")
        print_line("Steps", "bold")
        for line in story.steps:
            print_line(f"  {_MARKS[line.status]} {_step(line)}", _STYLES.get(line.status, ""))
        print_line("", "")
        print_line("Attempts", "bold")
        for attempt in story.attempts:
            style = "red" if attempt.state == "failed" else ""
            print_line(f"  {_attempt(attempt, now)}", style)
            if attempt.error_class:
                message = attempt.error_message or ""
                shown = message if errors else message.split("\n", 1)[0][:200]
                print_line(f"      {attempt.error_class}: {shown}", style)
                if errors and attempt.error_traceback:
                    for text in attempt.error_traceback.rstrip().split("\n"):
                        print_line(f"      {text}", "dim")
        if not story.attempts:
            print_line("  none yet", "")
        if story.actions:
            print_line("", "")
            print_line("Operators", "bold")
        for action in story.actions:
            reason = f": {action.reason}" if action.reason else ""
            who = action.actor or "somebody"
            print_line(f"  {ago(clock.utc(action.created_at), now)}: {action.action} by {who}{reason}", "")

    def _json(self, story: Story) -> None:
        import json

        workflow = story.workflow
        value = {
            "id": workflow.pk,
            "type": workflow.type,
            "hero": hero_label(workflow),
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
                for line in story.steps
            ],
            "attempts": [model_to_dict(each) | {"id": each.pk} for each in story.attempts],
            "actions": [model_to_dict(each) for each in story.actions],
        }
        self.stdout.write(json.dumps(value, default=str, ensure_ascii=False))


def _step(line: StepLine) -> str:
    notes = [] if line.status in ("done", "to come") else [line.status]
    if line.former_name:
        notes.append(f"formerly {line.former_name}")
    if len(line.attempts) > 1:
        notes.append(f"{len(line.attempts)} attempts")
    return line.name + (f" ({', '.join(notes)})" if notes else "")


def _attempt(attempt: StepExecution, now: Any) -> str:
    took = duration_of(attempt, now)
    when = ago(clock.utc(attempt.started_at), now) if attempt.started_at else ""
    if attempt.state == "scheduled":
        ahead = clock.utc(attempt.scheduled_for) - now
        when = f"due in {in_words(ahead)}" if ahead.total_seconds() > 0 else f"due since {in_words(-ahead)}"
    ended = f"{attempt.state}/{attempt.outcome}" if attempt.outcome else str(attempt.state)
    parts = [attempt.step_name.ljust(24), ended.ljust(24), when.ljust(14)]
    if took is not None:
        parts.append(f"took {in_words(took)}")
    if attempt.iterations:
        total = f" of {attempt.iterations_total}" if attempt.iterations_total else ""
        parts.append(f"{attempt.iterations}{total} iterations")
    return " ".join(parts).rstrip()


def _printer(stdout: Any) -> Any:
    """Print with rich where it is installed and there is a terminal; plainly otherwise."""
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return lambda text, _style: stdout.write(text)
    if not stdout.isatty():
        return lambda text, _style: stdout.write(text)
    console = Console(file=stdout, highlight=False)
    return lambda text, style: console.print(Text(text, style=style))
