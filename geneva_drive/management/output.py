"""Times in words."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from django.core.management.base import OutputWrapper

from geneva_drive import clock
from geneva_drive.events import step_performed
from geneva_drive.models.hero import hero_label
from geneva_drive.models.records import OperatorAction, Signal
from geneva_drive.reports.explain import explain
from geneva_drive.reports.history import Chain, Timeline, TimelineStep, chains, duration_of
from geneva_drive.states import ExecutionState

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def in_words(delta: timedelta) -> str:
    """Return a duration in its two largest units: ``3d 4h``, ``12m 5s``, ``0.4s``."""
    seconds = delta.total_seconds()
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}s"
    parts = []
    rest = int(seconds)
    for size, name in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{name}")
    return " ".join(parts[:2])


def ago(moment: datetime, now: datetime) -> str:
    """Return how long ago a moment was."""
    delta = now - moment
    return "now" if delta < timedelta(seconds=1) else f"{in_words(delta)} ago"


def show_logs(stream: OutputWrapper) -> None:
    """Show what is logged below ``geneva_drive``, unless the project's ``LOGGING`` sees to that."""
    logger = logging.getLogger("geneva_drive")
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)


def show_steps(stream: OutputWrapper) -> None:
    """Write a line for each body that was run."""

    def show(workflow: Any, execution: Any, seconds: float, error: BaseException | None, **_: Any) -> None:
        how = "" if error is None else f", {type(error).__name__}"
        stream.write(f"{workflow}: {execution.step_name}, {seconds:.3f} s{how}")

    step_performed.connect(show, weak=False, dispatch_uid="geneva_worker")


_MOST = 200
"""Characters of an error's message."""
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
_STYLES = {
    "done": "green",
    "success": "green",
    "failed": "red",
    "paused": "red",
    "current": "yellow",
    "reattempted": "yellow",
    "not declared": "red",
}


class _Screen(Protocol):
    def heading(self, text: str, style: str = "") -> None: ...
    def line(self, text: str, style: str = "") -> None: ...
    def table(
        self, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], styles: Sequence[str]
    ) -> None: ...


def show(timeline: Timeline, signals: list[Signal], stdout: Any, *, errors: bool) -> None:
    """Write the timeline; with ``errors``, whole messages and tracebacks."""
    screen = _screen(stdout)
    workflow, now = timeline.workflow, clock.now(timeline.workflow._state.db)
    hero = hero_label(workflow)
    screen.heading(f"{workflow.type} {workflow.pk}" + (f" for {hero}" if hero else ""))
    screen.line(
        f"{workflow.state}, started {ago(clock.utc(workflow.created_at), now)}.", _style(workflow.state)
    )
    screen.line(explain(workflow))
    screen.heading("Steps")
    for line in timeline.steps:
        screen.line(f"  {_MARKS[line.status]} {_step(line)}", _style(line.status))
    screen.heading("Attempts" if timeline.attempts else "No attempt yet")
    if timeline.attempts:
        found = chains(timeline.attempts)
        screen.table(
            ("step", "outcome", "when", "took", "progress"),
            [_attempt(chain, now) for chain in found],
            [_style(chain.last.outcome or chain.last.state) for chain in found],
        )
    _errors(timeline, screen, whole=errors)
    if signals:
        screen.heading("Signals")
        received = [
            (each.name, each.idempotency_key or "", str(each.state), ago(clock.utc(each.created_at), now))
            for each in signals
        ]
        screen.table(("name", "key", "state", "received"), received, [""] * len(received))
    if timeline.actions:
        screen.heading("Done by hand")
        rows = [
            (ago(clock.utc(each.created_at), now), _done(each), each.actor or "somebody", each.reason)
            for each in timeline.actions
        ]
        screen.table(("when", "what", "who", "reason"), rows, [""] * len(rows))


def _errors(timeline: Timeline, screen: _Screen, *, whole: bool) -> None:
    failed = [each for each in timeline.attempts if each.error_class]
    if not failed:
        return
    screen.heading("Errors")
    for each in failed:
        message = each.error_message or ""
        shown = message if whole else _beginning(message)
        screen.line(f"  {each.step_name}: {each.error_class}: {shown}", "red")
        if whole and each.error_traceback:
            for text in each.error_traceback.rstrip().split("\n"):
                screen.line(f"      {text}", "dim")


def _beginning(message: str) -> str:
    first, _, rest = message.partition("\n")
    return f"{first[:_MOST].rstrip()}…" if rest or len(first) > _MOST else first


def _done(action: OperatorAction) -> str:
    after = action.after if isinstance(action.after, dict) else {}
    # Where resume_at went, and to when reschedule moved it.
    return " ".join([action.action, *(str(after[name]) for name in ("step", "at") if after.get(name))])


def _style(word: Any) -> str:
    return _STYLES.get(str(word), "")


def _step(line: TimelineStep) -> str:
    notes = [] if line.status in ("done", "to come") else [line.status]
    if line.former_name:
        notes.append(f"formerly {line.former_name}")
    runs = len(chains(line.attempts))
    if runs > 1:
        notes.append(f"{runs} attempts")
    return line.name + (f" ({', '.join(notes)})" if notes else "")


def _attempt(chain: Chain, now: datetime) -> tuple[str, ...]:
    last, first = chain.last, chain.first
    when = ago(clock.utc(first.started_at), now) if first.started_at else ""
    if last.state == ExecutionState.SCHEDULED:
        ahead = clock.utc(last.scheduled_for) - now
        when = f"due in {in_words(ahead)}" if ahead.total_seconds() > 0 else f"due for {in_words(-ahead)}"
    took = [each for execution in chain.executions if (each := duration_of(execution, now)) is not None]
    ended = f"{last.state}/{last.outcome}" if last.outcome else str(last.state)
    progress = chain.progress
    told = "" if progress is None else str(progress)
    if len(chain.executions) > 1:
        told += f" in {len(chain.executions)} executions"
    return (last.step_name, ended, when, in_words(sum(took[1:], took[0])) if took else "", told)


def _screen(stdout: Any) -> _Screen:
    if not stdout.isatty():
        return _Plain(stdout)
    try:
        import rich  # noqa: F401
    except ImportError:
        return _Plain(stdout)
    return _Rich(stdout)


class _Plain:
    def __init__(self, stdout: Any) -> None:
        self._stdout = stdout
        self._begun = False

    def heading(self, text: str, style: str = "") -> None:  # noqa: ARG002 - paper has no colours
        if self._begun:
            self._stdout.write("")
        self._begun = True
        self._stdout.write(text)

    def line(self, text: str, style: str = "") -> None:  # noqa: ARG002
        self._stdout.write(text)

    def table(self, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], styles: Sequence[str]) -> None:  # noqa: ARG002
        widths = [max(len(row[place]) for row in rows) for place in range(len(columns))]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            self._stdout.write("  " + "  ".join(cells).rstrip())


class _Rich:
    def __init__(self, stdout: Any) -> None:
        from rich.console import Console

        self._console = Console(file=stdout, highlight=False)

    def heading(self, text: str, style: str = "") -> None:
        self.line("")
        self.line(text, style or "bold")

    def line(self, text: str, style: str = "") -> None:
        from rich.text import Text

        # Never as markup: what rows say is data.
        self._console.print(Text(text, style=style))

    def table(self, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], styles: Sequence[str]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 2), header_style="dim")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row, style in zip(rows, styles, strict=True):
            table.add_row(*(Text(cell, style=style) for cell in row))
        self._console.print(table)
