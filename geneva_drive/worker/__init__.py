"""The worker: claim, run, sleep."""

from __future__ import annotations

from geneva_drive.worker.keeping import Feeder, Housekeeper
from geneva_drive.worker.loop import Worker

__all__ = ["Feeder", "Housekeeper", "Worker"]
