"""Show progress: as a live table on a terminal, and with one line per event elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from geneva_drive import StepExecution, Workflow
from geneva_drive.reports.history import Progress
from geneva_drive.reports.history import chains as in_chains

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Display", "History", "Titles", "display", "histories"]

History = list[StepExecution]
Titles = dict[int, tuple[str, str]]
"""For each workflow's key: a short name, and what is special about it."""

MARKS = {
    "scheduled": "[dim]… {}[/dim]",
    "waiting": "[magenta]⧗ {}[/magenta]",
    "in_progress": "[cyan]▶ {}[/cyan]",
    "completed": "[green]✓ {}[/green]",
    "skipped": "[dim]↷ {}[/dim]",
    "canceled": "[yellow]✗ {}[/yellow]",
    "failed": "[red]✗ {}[/red]",
}
STATES = {"finished": "green", "canceled": "yellow", "paused": "red", "performing": "cyan", "ready": "white"}


class Display(Protocol):
    """Where the demo shows progress."""

    def __enter__(self) -> Display: ...
    def __exit__(self, *exc: object) -> None: ...
    def say(self, text: str) -> None: ...
    def show(self, seen: dict[Workflow, History]) -> None: ...


def histories(keys: Iterable[int]) -> dict[Workflow, History]:
    """Read the workflows and their step executions, in two queries."""
    rows = Workflow.objects.filter(pk__in=list(keys)).order_by("pk").prefetch_related("executions")
    return {row: sorted(row.executions.all(), key=lambda execution: execution.pk) for row in rows}


def described(progress: Progress) -> str:
    """Return how far a loop is, how fast it runs, and how long it will take."""
    parts = [str(progress)]
    if progress.rate is not None:
        parts.append(f"{progress.rate:,.0f} a second")
    if progress.remaining:
        parts.append(f"{progress.remaining.total_seconds():.0f} s left")
    return ", ".join(parts)


def _named(step_name: str, progress: Progress | None) -> str:
    return step_name if progress is None else f"{step_name} {described(progress)}"


def display(titles: Titles) -> Display:
    """Return the display that suits standard output."""
    if sys.stdout.isatty():
        try:
            return _Live(titles)
        except ImportError:  # rich is in the extra `demo`
            pass
    return _Plain(titles)


class _Plain:
    def __init__(self, titles: Titles) -> None:
        self._titles = titles
        self._shown: dict[int, str] = {}
        self._ended: set[int] = set()
        self._tenths: dict[int, int] = {}
        self._began = time.monotonic()

    def __enter__(self) -> _Plain:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def say(self, text: str) -> None:
        print(text, flush=True)

    def show(self, seen: dict[Workflow, History]) -> None:
        for workflow, history in seen.items():
            name = self._titles[workflow.pk][0]
            for execution in history:
                # Do not report each time that a loop yields and continues: its progress shows that.
                yielding = execution.outcome == "continued" or (
                    execution.continues_from_id is not None and execution.is_active
                )
                if self._shown.get(execution.pk) != execution.state and not yielding:
                    self._shown[execution.pk] = execution.state
                    self._line(f"{name}: {execution.step_name} {execution.get_state_display()}")
            for chain in in_chains(history):
                self._loop(name, chain.first.pk, chain.step_name, chain.progress)
            if workflow.is_ended and workflow.pk not in self._ended:
                self._ended.add(workflow.pk)
                self._line(f"{name}: {workflow.get_state_display().upper()}")

    def _loop(self, name: str, key: int, step_name: str, progress: Progress | None) -> None:
        """Print a line for every 10 % of a loop."""
        if progress is None or progress.share is None:
            return
        tenth = int(progress.share * 10)
        if tenth > self._tenths.get(key, 0):
            self._tenths[key] = tenth
            self._line(f"{name}: {step_name} {described(progress)}")

    def _line(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:5.1f} s  {text}", flush=True)


class _Live:
    def __init__(self, titles: Titles) -> None:
        from rich.live import Live

        self._titles = titles
        self._live = Live(auto_refresh=False)

    def __enter__(self) -> _Live:
        self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        from rich.markup import escape

        self._live.console.print(escape(text), highlight=False)

    def show(self, seen: dict[Workflow, History]) -> None:
        self._live.update(self._table(seen), refresh=True)

    def _table(self, seen: dict[Workflow, History]) -> Table:
        from rich.table import Table

        table = Table("workflow", "state", "steps", expand=True)
        table.columns[2].ratio = 1
        for workflow, history in seen.items():
            color = STATES[workflow.state]
            steps = "  ".join(
                MARKS[chain.last.state].format(_named(chain.step_name, chain.progress))
                for chain in in_chains(history)
            )
            table.add_row(
                self._titles[workflow.pk][0], f"[{color}]{workflow.get_state_display()}[/{color}]", steps
            )
        return table
