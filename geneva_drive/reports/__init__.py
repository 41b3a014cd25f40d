"""Reports about workflows: counts, waits, undeclared steps, histories and explanations. They only read."""

from __future__ import annotations

from geneva_drive.reports.explain import explain
from geneva_drive.reports.figures import Figures, figures
from geneva_drive.reports.history import Chain, Progress, chains, history, progress
from geneva_drive.reports.in_flight import (
    RemovedStep,
    Undeclared,
    Waiting,
    removed_steps_in_flight,
    undeclared_in_flight,
    waiting,
)

__all__ = [
    "Chain",
    "Figures",
    "Progress",
    "RemovedStep",
    "Undeclared",
    "Waiting",
    "chains",
    "explain",
    "figures",
    "history",
    "progress",
    "removed_steps_in_flight",
    "undeclared_in_flight",
    "waiting",
]
