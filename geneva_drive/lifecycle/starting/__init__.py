"""The first rows of a run."""

from __future__ import annotations

from geneva_drive.lifecycle.starting.filling import touch
from geneva_drive.lifecycle.starting.many import start_many
from geneva_drive.lifecycle.starting.one import get_or_start, save_new

__all__ = ["get_or_start", "save_new", "start_many", "touch"]
