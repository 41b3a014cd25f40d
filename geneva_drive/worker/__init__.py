"""The worker: claim, run, sleep."""

from __future__ import annotations

from geneva_drive.worker.loop import Worker

__all__ = ["Worker"]
