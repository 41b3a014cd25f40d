"""Moving a workflow by hand: pause, resume, resume_at, skip, cancel, reschedule.

Each locks the workflow, looks again at its state, moves the rows with the same functions as everybody
else, and writes down who did it and why, in one transaction.
"""

from __future__ import annotations

from geneva_drive.lifecycle.controls.canceling import cancel
from geneva_drive.lifecycle.controls.pausing import pause
from geneva_drive.lifecycle.controls.rescheduling import reschedule
from geneva_drive.lifecycle.controls.resuming import resume, resume_at
from geneva_drive.lifecycle.controls.skipping import skip

__all__ = ["cancel", "pause", "reschedule", "resume", "resume_at", "skip"]
