"""Durations, moments and steps as text: one wording for the admin, the commands, the doctor and `explain`."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import formats
from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.states import ExecutionState

MARKS = {
    "done": "✓",
    "skipped": "»",
    "failed": "✗",
    "canceled": "-",
    "current": "▶",
    "to come": "·",
    "gravestone": "†",
    "undeclared": "?",
}
"""A character for each status of a step in a timeline."""


def in_words(delta: timedelta) -> str:
    """Return a duration in its two largest units: ``3 d 4 h``, ``12 min 5 s``, ``0.4 s``."""
    seconds = delta.total_seconds()
    if seconds < 10 and not seconds.is_integer():
        return _("%(count)s s") % {"count": formats.number_format(round(max(seconds, 0.0), 2))}
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [
        (days, _("%(count)s d")),
        (hours, _("%(count)s h")),
        (minutes, _("%(count)s min")),
        (seconds, _("%(count)s s")),
    ]
    shown = [each for each in parts if each[0]][:2] or parts[-1:]
    return " ".join(text % {"count": count} for count, text in shown)


def whole_seconds(delta: timedelta) -> timedelta:
    """Drop the fraction, for durations that are still growing."""
    return timedelta(seconds=int(delta.total_seconds()))


def relative(moment: datetime, now: datetime) -> str:
    """Return a field's moment relative to now: ``in 3 h``, ``5 min ago``, ``now``."""
    ahead = clock.utc(moment) - now
    if abs(ahead) < timedelta(seconds=1):
        return _("now")
    text = _("in %(time)s") if ahead > timedelta(0) else _("%(time)s ago")
    return text % {"time": in_words(whole_seconds(abs(ahead)))}


def exact(moment: datetime | None) -> str:
    """Return a field's moment in UTC: ``2031-05-01 09:30:00+00:00``."""
    if moment is None:
        return _("an unknown time")
    return clock.utc(moment).isoformat(sep=" ", timespec="seconds")


def activity(execution: StepExecution, now: datetime) -> str:
    """Return what an active execution does and for how long: ``running for 3 h``, ``overdue by 5 min``, ``in 2 d``."""
    if execution.state == ExecutionState.IN_PROGRESS:
        text, since = _("running for %(time)s"), execution.started_at or execution.created_at
    elif execution.state == ExecutionState.WAITING:
        text, since = _("waiting for %(time)s"), execution.waiting_since or execution.created_at
    elif execution.on_hold:
        return _("on hold")
    else:
        text, since = _("overdue by %(time)s"), execution.scheduled_for
        if now - clock.utc(since) <= timedelta(seconds=1):
            return relative(since, now)
    return text % {"time": in_words(whole_seconds(now - clock.utc(since)))}
