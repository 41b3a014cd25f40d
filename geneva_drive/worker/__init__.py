"""The worker: claims executions that are due, runs them, and does the housekeeping."""

from __future__ import annotations

from geneva_drive.worker.maintenance import Feeder, Maintenance
from geneva_drive.worker.worker import Worker

__all__ = ["Feeder", "Maintenance", "Worker"]
