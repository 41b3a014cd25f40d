"""The only writer of states and timestamps.

Functions change a row in memory and remember what they changed; ``flush`` writes it, one statement a
row, so that ending one step and beginning the next costs the workflow one UPDATE. Whoever changes a row
holds its lock and flushes it before the transaction ends.
"""

from __future__ import annotations

from geneva_drive.lifecycle.transitions.attempts import begin, end, finalized, note_error, unbegin
from geneva_drive.lifecycle.transitions.postponing import (
    defer,
    hold,
    note_unknown,
    release,
    reschedule,
    unhold,
)
from geneva_drive.lifecycle.transitions.waiting import attach, consume, park, wake
from geneva_drive.lifecycle.transitions.workflows import move, request_pause, touch
from geneva_drive.lifecycle.transitions.writing import flush

__all__ = [
    "attach",
    "begin",
    "consume",
    "defer",
    "end",
    "finalized",
    "flush",
    "hold",
    "move",
    "note_error",
    "note_unknown",
    "park",
    "release",
    "request_pause",
    "reschedule",
    "touch",
    "unbegin",
    "unhold",
    "wake",
]
