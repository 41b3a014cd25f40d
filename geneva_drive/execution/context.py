"""What an instance knows while its body runs, and how the body leaves it early."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from django.db import connections

from geneva_drive.definition import flow
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.logs import StepLogger, about

if TYPE_CHECKING:
    from geneva_drive.execution.performing import Performance

__all__ = ["StepContext", "open_blocks"]

logger = logging.getLogger("geneva_drive.step")

_CONTROLS: dict[str, type[flow.FlowControl]] = {
    "cancel": flow.Cancel,
    "finish": flow.Finish,
    "pause": flow.Pause,
    "reattempt": flow.Reattempt,
    "skip": flow.Skip,
    "suspend": flow.Suspend,
}


class StepContext:
    """What the instance knows while its body runs."""

    only_reads = False

    def __init__(
        self, performance: Performance, *, outer_blocks: dict[str, int], resumable: bool | None = None
    ) -> None:
        self.execution = performance.execution
        self._workflow = performance.workflow
        if resumable is None:
            resumable = performance.definition is not None and performance.definition.resumable
        self._resumable = resumable
        self.outer_blocks = outer_blocks
        self.in_body = False

    @cached_property
    def logger(self) -> logging.LoggerAdapter[Any]:
        return StepLogger(logger, about(self._workflow, self.execution))

    def leave(self, how: str, **arguments: Any) -> NoReturn:
        self.check_outside_of_blocks(how)
        if how == "suspend" and not self._resumable:
            raise InvalidStateError(f"{self.where}: suspend() is for resumable steps. Use reattempt(wait=…).")
        raise _CONTROLS[how](**arguments)

    @property
    def where(self) -> str:
        return f"{self._workflow}, step {self.execution.step_name}"

    def check_outside_of_blocks(self, how: str) -> None:
        """Refuse what may leave the step, where it would roll back a block of the step's own."""
        if not self.in_body:
            raise InvalidStateError(f"{self.where}: {how}() was called in a hook. Call it in the step.")
        for alias, depth in open_blocks().items():
            if depth > self.outer_blocks.get(alias, 0):
                raise InvalidStateError(
                    f"{self.where}: {how}() was called inside a transaction.atomic() block on {alias!r}, "
                    "which it would roll back. Decide inside the block, call it after the block."
                )


def open_blocks() -> dict[str, int]:
    return {
        connection.alias: len(connection.atomic_blocks)
        for connection in connections.all(initialized_only=True)
    }
