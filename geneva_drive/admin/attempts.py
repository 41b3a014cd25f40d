"""The attempts on the page of one workflow: a loop's executions are one line, since each goes on from the last."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.utils.text import Truncator
from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.admin.presenting import as_json, in_words, pill, relative, tone
from geneva_drive.reports.history import Chain, Progress, chains, duration_of
from geneva_drive.states import ExecutionState

if TYPE_CHECKING:
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.reports.history import Story

__all__ = ["Attempt", "attempts", "progress_in_words"]

_LONGEST_MESSAGE = 120


@dataclass(frozen=True)
class Attempt:
    """One line, ready to be shown.

    Attributes
    ----------
    execution
        The last of its executions.
    left, width
        Of its bar, in steps of five per cent: a strict Content-Security-Policy allows classes and no inline
        style.
    error, traceback
        What is shown at once, and what is shown below it: no message a second time.
    parts
        What each of its executions did, where there are more than one.
    """

    execution: StepExecution
    started: Any
    pill: Any
    error: str
    traceback: str
    tone: str
    took: str
    left: int
    width: int
    progress: str
    parts: list[dict[str, Any]]
    details: list[tuple[str, str]]


def attempts(story: Story, now: datetime) -> list[Attempt]:
    """Return the lines, the latest first."""
    lines = chains(story.attempts)
    begun = [chain for chain in lines if chain.first.started_at is not None]
    first = min((_start(chain) for chain in begun), default=now)
    whole = max((_end(chain, now) for chain in begun), default=now) - first
    lines.sort(key=lambda chain: chain.last.pk, reverse=True)
    return [_line(chain, first, whole, now) for chain in lines]


def _start(chain: Chain) -> datetime:
    return clock.utc(chain.first.started_at or chain.first.created_at)


def _end(chain: Chain, now: datetime) -> datetime:
    return clock.utc(chain.last.finished_at) if chain.last.finished_at else now


def _line(chain: Chain, first: datetime, whole: timedelta, now: datetime) -> Attempt:
    last = chain.last
    worked = [took for each in chain.executions if (took := duration_of(each, now)) is not None]
    left = width = 0
    if chain.first.started_at is not None and whole > timedelta(0):
        left = min(95, int((_start(chain) - first) / whole * 20) * 5)
        width = max(5, min(100 - left, round((_end(chain, now) - _start(chain)) / whole * 20) * 5))
    return Attempt(
        execution=last,
        started=relative(chain.first.started_at or last.scheduled_for, now),
        pill=_pill(last),
        error=_error(last),
        traceback="\n\n".join(_below(last)),
        tone=tone(str(last.outcome or last.state)),
        took=in_words(sum(worked, timedelta(0))) if worked else "-",
        left=left,
        width=width,
        progress=progress_in_words(chain.progress),
        parts=[_part(each, now) for each in chain.executions] if len(chain.executions) > 1 else [],
        details=_details(last),
    )


def _error(execution: StepExecution) -> str:
    name = (execution.error_class or "").rsplit(".", 1)[-1]
    message = Truncator(execution.error_message or "").chars(_LONGEST_MESSAGE)
    return f"{name}: {message}" if message else name


def _below(execution: StepExecution) -> list[str]:
    message = execution.error_message or ""
    # A browser would show its lines as one.
    is_cut = len(message) > _LONGEST_MESSAGE or "\n" in message
    return [each for each in (message if is_cut else "", execution.error_traceback or "") if each]


def _pill(execution: StepExecution) -> str:
    label = execution.get_outcome_display() or execution.get_state_display()
    return pill(str(execution.outcome or execution.state), str(label))


def _part(execution: StepExecution, now: datetime) -> dict[str, Any]:
    took = duration_of(execution, now)
    return {
        "started": relative(execution.started_at or execution.scheduled_for, now),
        "pill": _pill(execution),
        "took": in_words(took) if took is not None else "-",
        "iterations": execution.iterations,
    }


def progress_in_words(found: Progress | None) -> str:
    """Return how far a loop is, how fast it goes and how long the rest takes; "" for what is no loop."""
    if found is None:
        return ""
    parts = [_("%(progress)s done") % {"progress": found}]
    if found.rate is not None and found.share != 1:
        parts.append(_("%(rate)s per second") % {"rate": f"{found.rate:,.1f}"})
    if found.remaining:
        parts.append(_("%(time)s of work left") % {"time": in_words(found.remaining)})
    return ", ".join(parts)


def _details(execution: StepExecution) -> list[tuple[str, str]]:
    details = []
    for label, name in ((_("Cursor"), "cursor"), (_("Notes"), "metadata")):
        try:
            value = getattr(execution, name)
        except Exception as error:  # noqa: BLE001 - other code's cursor may not be decodable; the page says so
            details.append((label, f"{type(error).__name__}: {error}"))
            continue
        if value is not None:
            details.append((label, as_json(value)))
    if execution.state == ExecutionState.SCHEDULED and execution.deferred_since is not None:
        details.append((_("Deferred since"), str(execution.deferred_since)))
    return details
