"""What the commands write: tables, the timeline of a workflow, and what a worker does."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import OutputWrapper

from geneva_drive import clock
from geneva_drive.events import step_performed
from geneva_drive.models.records import OperatorAction, Signal
from geneva_drive.reports.explain import explain
from geneva_drive.reports.history import Chain, Timeline, TimelineStep, chains, duration_of
from geneva_drive.reports.wording import MARKS, activity, in_words, relative
from geneva_drive.states import ExecutionState

_MOST = 200
"""Characters of an error's message."""


def show_logs(stream: OutputWrapper) -> None:
    """Write what is logged below ``geneva_drive`` to ``stream``, unless the project's ``LOGGING`` handles it."""
    logger = logging.getLogger("geneva_drive")
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)


def show_steps(stream: OutputWrapper) -> None:
    """Write a line for each step that ran."""

    def show(workflow: Any, execution: Any, seconds: float, error: BaseException | None, **_: Any) -> None:
        how = "" if error is None else f", {type(error).__name__}"
        stream.write(f"{workflow}: {execution.step_name}, {seconds:.3f} s{how}")

    step_performed.connect(show, weak=False, dispatch_uid="geneva_worker")


def show_table(
    stream: OutputWrapper, columns: Sequence[str], rows: Iterable[Sequence[str]], *, indent: str = ""
) -> None:
    """Write rows below their column titles, each column as wide as its longest cell."""
    lines = [columns, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        stream.write(indent + "  ".join(cells).rstrip())


def show_timeline(stream: OutputWrapper, timeline: Timeline, signals: list[Signal], *, errors: bool) -> None:
    """Write a timeline; with ``errors``, whole messages and tracebacks."""
    workflow, now = timeline.workflow, clock.now(timeline.workflow._state.db)
    hero = workflow.hero_label
    stream.write(f"{workflow.type} {workflow.pk}" + (f" for {hero}" if hero else ""))
    stream.write(f"{workflow.state}, started {relative(workflow.created_at, now)}.")
    stream.write(explain(workflow))
    stream.write("\nSteps")
    for line in timeline.steps:
        stream.write(f"  {MARKS[line.status]} {_step(line)}")
    stream.write("\nAttempts" if timeline.attempts else "\nNo attempt yet")
    if timeline.attempts:
        attempts = [_attempt(chain, now) for chain in chains(timeline.attempts)]
        show_table(stream, ("step", "outcome", "when", "took", "progress"), attempts, indent="  ")
    failed = [each for each in timeline.attempts if each.error_class]
    if failed:
        stream.write("\nErrors")
    for each in failed:
        message = each.error_message or ""
        shown = message if errors else _beginning(message)
        stream.write(f"  {each.step_name}: {each.error_class}: {shown}")
        if errors and each.error_traceback:
            for text in each.error_traceback.rstrip().split("\n"):
                stream.write(f"      {text}")
    if signals:
        stream.write("\nSignals")
        received = [
            (each.name, each.idempotency_key or "", str(each.state), relative(each.created_at, now))
            for each in signals
        ]
        show_table(stream, ("name", "key", "state", "received"), received, indent="  ")
    if timeline.actions:
        stream.write("\nOperator actions")
        actions = [
            (relative(each.created_at, now), _done(each), each.actor or "somebody", each.reason)
            for each in timeline.actions
        ]
        show_table(stream, ("when", "what", "who", "reason"), actions, indent="  ")


def _beginning(message: str) -> str:
    first, _, rest = message.partition("\n")
    return f"{first[:_MOST].rstrip()}…" if rest or len(first) > _MOST else first


def _done(action: OperatorAction) -> str:
    after = action.after if isinstance(action.after, dict) else {}
    # The step of resume_at, the time of reschedule.
    return " ".join([action.action, *(str(after[name]) for name in ("step", "at") if after.get(name))])


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
    when = relative(first.started_at, now) if first.started_at else ""
    if last.state in (ExecutionState.SCHEDULED, ExecutionState.WAITING):
        when = activity(last, now)
    took = [each for execution in chain.executions if (each := duration_of(execution, now)) is not None]
    ended = f"{last.state}/{last.outcome}" if last.outcome else str(last.state)
    progress = "" if chain.progress is None else str(chain.progress)
    if len(chain.executions) > 1:
        progress += f" in {len(chain.executions)} executions"
    return (last.step_name, ended, when, in_words(sum(took[1:], took[0])) if took else "", progress)
