"""Dispatchers: what carries "this execution is due" to a process that runs it."""

from __future__ import annotations

from geneva_drive.dispatchers.base import Dispatcher
from geneva_drive.dispatchers.immediate import Immediate
from geneva_drive.dispatchers.worker import Worker

__all__ = ["Dispatcher", "Immediate", "Worker"]
