"""What a worker's terminal shows, in a project that has configured no logging for it."""

from __future__ import annotations

import logging
from typing import Any

from django.core.management.base import OutputWrapper

from geneva_drive.events import step_performed

__all__ = ["show_logs", "show_steps"]


def show_logs(stream: OutputWrapper) -> None:
    """Show what is logged below ``geneva_drive``, unless the project's ``LOGGING`` sees to that."""
    logger = logging.getLogger("geneva_drive")
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)


def show_steps(stream: OutputWrapper) -> None:
    """Write a line for each body that was run."""

    def show(workflow: Any, execution: Any, seconds: float, error: BaseException | None, **_: Any) -> None:
        how = "" if error is None else f", {type(error).__name__}"
        stream.write(f"{workflow}: {execution.step_name}, {seconds:.3f} s{how}")

    step_performed.connect(show, weak=False, dispatch_uid="geneva_worker")
