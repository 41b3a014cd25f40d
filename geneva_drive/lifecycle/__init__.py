"""How rows move: everything that can be done to a workflow, by code or by operators."""

from __future__ import annotations

from geneva_drive.lifecycle.bulk_start import start_many
from geneva_drive.lifecycle.controls import cancel, pause, reschedule, resume, resume_at, skip
from geneva_drive.lifecycle.signals import send as send_signal
from geneva_drive.lifecycle.starting import get_or_start, save_new, touch

__all__ = [
    "cancel",
    "get_or_start",
    "pause",
    "reschedule",
    "resume",
    "resume_at",
    "save_new",
    "send_signal",
    "skip",
    "start_many",
    "touch",
]
