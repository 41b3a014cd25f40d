"""What is in progress: in which process, whether that lives, and what came before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.explaining import phrases
from geneva_drive.models.records import Process
from geneva_drive.states import Outcome

if TYPE_CHECKING:
    from datetime import datetime

    from geneva_drive.models.records import OperatorAction
    from geneva_drive.models.step_execution import StepExecution

__all__ = ["in_progress", "rerun"]


def in_progress(
    execution: StepExecution, asked: OperatorAction | None, *, pausing: bool, now: datetime
) -> str:
    """Return where a step is in progress and what follows.

    Parameters
    ----------
    asked
        The latest pause by hand, if there was one: told when ``pausing``.
    pausing
        Whether a pause waits for the end of the step.
    """
    told: dict[str, Any] = {"step": execution.step_name, "since": phrases.moment(execution.started_at)}
    if execution.process_id is None:
        assert execution.started_at is not None
        told["stuck"] = phrases.moment(clock.utc(execution.started_at) + settings.STUCK_AFTER)
        return (
            _(
                "Its step '%(step)s' is in progress since %(since)s in a process that is not known, and will "
                "be recovered after %(stuck)s."
            )
            % told
        )
    process = Process.objects.using(execution._state.db).filter(pk=execution.process_id).first()
    if process is None:
        return (
            _(
                "Its step '%(step)s' is in progress since %(since)s in a process that is gone, and will be "
                "recovered by the next housekeeping."
            )
            % told
        )
    beat = clock.utc(process.heartbeat_at)
    told |= {
        "host": process.hostname,
        "pid": process.pid,
        "beat": phrases.moment(beat),
        "dead": phrases.moment(beat + settings.LEASE),
        "who": phrases.by_whom(asked) if asked is not None else "",
    }
    return _in_process(process, pausing=pausing, by_somebody=asked is not None, now=now) % told


def _in_process(process: Process, *, pausing: bool, by_somebody: bool, now: datetime) -> str:
    beat = clock.utc(process.heartbeat_at)
    if process.heartbeat_at < process.started_at:
        # What a forced exit writes, so that nobody waits for the lease. No beat was ever then.
        return _(
            "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s, which was made to end "
            "before its steps did: it will be recovered by the next housekeeping."
        )
    if beat + settings.LEASE <= now:
        return _(
            "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s, which has not "
            "beaten since %(beat)s and is held for dead: it will be recovered by the next housekeeping."
        )
    if now - beat > settings.LEASE / 2:
        return _(
            "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s, which has not "
            "beaten since %(beat)s; unless it beats, it will be recovered after %(dead)s."
        )
    if not pausing:
        return _(
            "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s, which is alive."
        )
    if not by_somebody:
        return _(
            "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s; it will pause "
            "after that step."
        )
    return _(
        "Its step '%(step)s' is in progress since %(since)s on %(host)s, process %(pid)s; it will pause "
        "after that step %(who)s."
    )


def rerun(execution: StepExecution, ended: StepExecution | None) -> str | None:
    """Return a sentence about the attempt before if a crash ended it. ``ended``: the latest that has ended."""
    if ended is None or ended.outcome != Outcome.RECOVERED:
        return None
    told = {"number": execution.crashes + execution.reattempts + 1, "time": phrases.moment(ended.finished_at)}
    return (
        _(
            "It is attempt %(number)s in a row: the one before it was recovered at %(time)s, since its process had "
            "died."
        )
        % told
    )
