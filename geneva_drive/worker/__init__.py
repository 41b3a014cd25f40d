"""The worker: claim, run, sleep."""

from __future__ import annotations

from geneva_drive.worker.maintenance import Feeder, Housekeeper
from geneva_drive.worker.worker import Worker

__all__ = ["Feeder", "Housekeeper", "Worker"]
