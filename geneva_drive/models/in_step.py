"""What a workflow offers to the body of its steps, and only there."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from geneva_drive.exceptions import InvalidStateError

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from geneva_drive.models.signal import Signal
    from geneva_drive.models.step_execution import StepExecution

__all__ = ["InStep", "StepContext"]


class StepContext(Protocol):
    """What the executor hangs on the instance that a body receives."""

    execution: StepExecution
    only_reads: bool

    @property
    def logger(self) -> logging.LoggerAdapter[Any]: ...

    def leave(self, how: str, **arguments: Any) -> NoReturn:
        """Raise the flow control named ``how``, or ``InvalidStateError`` where it would do harm."""
        ...


class InStep:
    """Flow control and context; ``pause``, ``skip`` and ``cancel`` live with the verbs of the same name."""

    _step: StepContext | None = None
    _start_at: datetime | None = None

    def _in_step(self, word: str) -> StepContext:
        if self._step is None:
            raise InvalidStateError(f"{self}: {word} can be used only inside a step.")
        return self._step

    @property
    def current_execution(self) -> StepExecution:
        """The attempt that runs."""
        return self._in_step("current_execution").execution

    @property
    def received_signal(self) -> Signal | Any:
        """The signal that the step waited for; None in a step that waits for none.

        Another attempt at the step sees the same one.
        """
        # "| Any", so that steps which do wait need not ask whether it is None.
        signal = self._in_step("received_signal").execution.signal
        if signal is not None:
            signal.workflow = self  # type: ignore[assignment]
        return signal

    @property
    def logger(self) -> logging.LoggerAdapter[Any]:
        """A logger whose records say which workflow and step speaks."""
        return self._in_step("logger").logger

    def finish(self, reason: str = "") -> NoReturn:
        """End the step as done and the workflow with it, whatever steps are left."""
        self._in_step("finish()").leave("finish", reason=reason)

    def reattempt(self, wait: timedelta | None = None, rewind: bool = False, reason: str = "") -> NoReturn:
        """End this attempt and schedule another of the same step after ``wait``."""
        self._in_step("reattempt()").leave("reattempt", wait=wait, rewind=rewind, reason=reason)

    def suspend(self, wait: timedelta | None = None) -> NoReturn:
        """Hand a resumable step on to its successor after ``wait``."""
        self._in_step("suspend()").leave("suspend", wait=wait)
