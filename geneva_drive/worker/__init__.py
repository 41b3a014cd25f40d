"""The worker: claim, run, sleep."""

from __future__ import annotations

from geneva_drive.worker.maintenance import Feeder, Maintenance
from geneva_drive.worker.worker import Worker

__all__ = ["Feeder", "Maintenance", "Worker"]
