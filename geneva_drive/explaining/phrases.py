"""Parts of sentences that stand for themselves: moments, people, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from geneva_drive import clock

if TYPE_CHECKING:
    from datetime import datetime

    from geneva_drive.models.records import OperatorAction
    from geneva_drive.models.step_execution import StepExecution

__all__ = ["by_whom", "error_in_a_line", "moment", "with_reason"]

_LONGEST_ERROR = 300


def moment(value: datetime | None) -> str:
    if value is None:
        return _("an unknown time")
    return clock.utc(value).isoformat(sep=" ", timespec="seconds")


def by_whom(action: OperatorAction) -> str:
    words = {"actor": action.actor, "reason": action.reason}
    if action.actor:
        return (_("by %(actor)s (%(reason)s)") if action.reason else _("by %(actor)s")) % words
    return (_("by hand (%(reason)s)") if action.reason else _("by hand")) % words


def error_in_a_line(execution: StepExecution) -> str:
    """Return class and message in one line, without the full stop: the sentence around them has its own."""
    message = " ".join((execution.error_message or "").split())
    text = f"{execution.error_class}: {message}" if message else str(execution.error_class)
    return text[:_LONGEST_ERROR].removesuffix(".")


def with_reason(sentence: str, execution: StepExecution) -> str:
    notes = execution.metadata if isinstance(execution.metadata, dict) else {}
    return f"{sentence.removesuffix('.')} ({notes['reason']})." if notes.get("reason") else sentence
