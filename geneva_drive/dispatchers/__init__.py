"""Dispatchers bring executions that are due to the processes that run them."""

from __future__ import annotations

from geneva_drive.dispatchers.base import Dispatcher
from geneva_drive.dispatchers.celery import Celery
from geneva_drive.dispatchers.django_tasks import DjangoTasks
from geneva_drive.dispatchers.local import Immediate, Worker
from geneva_drive.dispatchers.running import run

__all__ = ["Celery", "Dispatcher", "DjangoTasks", "Immediate", "Worker", "run"]
