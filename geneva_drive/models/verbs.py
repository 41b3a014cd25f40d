"""The verbs of a workflow: pause, resume, skip, cancel, signal and the flow control inside a step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, TypeVar

from geneva_drive.exceptions import InvalidStateError

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

    from geneva_drive.models.records import Signal
    from geneva_drive.models.step_execution import StepExecution


_F = TypeVar("_F", bound=Callable[..., Any])


def alters_data(method: _F) -> _F:
    """Keep Django's templates from calling a method: ``{{ workflow.cancel }}`` must not cancel."""
    method.alters_data = True  # type: ignore[attr-defined]
    return method


def lifecycle(action: str, *arguments: Any, **options: Any) -> Any:
    """Call a function of ``geneva_drive.lifecycle``.

    This is the one late import of the models: lifecycle acts on rows and is above them in the layers, and a
    row's verbs and its ``save()`` need it.
    """
    from geneva_drive import lifecycle as layer

    return getattr(layer, action)(*arguments, **options)


class StepContext(Protocol):
    """What the executor, above this layer, sets on the instance that a body receives."""

    execution: StepExecution
    only_reads: bool

    @property
    def logger(self) -> logging.LoggerAdapter[Any]: ...

    def leave(self, how: str, **arguments: Any) -> NoReturn:
        """Raise the flow control named ``how``, or ``InvalidStateError`` where it is not allowed."""
        ...


class Verbs:
    """Mixin of ``Workflow``. Inside a step, ``pause``, ``skip`` and ``cancel`` are flow control."""

    _step: StepContext | None = None
    _start_at: datetime | None = None

    def _in_step(self, word: str) -> StepContext:
        if self._step is None:
            raise InvalidStateError(f"{self}: {word} can be used only inside a step.")
        return self._step

    @property
    def current_execution(self) -> StepExecution:
        """The running attempt."""
        return self._in_step("current_execution").execution

    @property
    def received_signal(self) -> Signal | Any:
        """The signal that the step waited for, the same one in each attempt; None in other steps."""
        # "| Any", so that steps with wait_for need not check for None.
        signal = self._in_step("received_signal").execution.signal
        if signal is not None:
            signal.workflow = self  # type: ignore[assignment]
        return signal

    @property
    def logger(self) -> logging.LoggerAdapter[Any]:
        """A logger whose records name the workflow and the step."""
        return self._in_step("logger").logger

    def finish(self, reason: str = "") -> NoReturn:
        """Complete the step and finish the workflow, whatever steps are left."""
        self._in_step("finish()").leave("finish", reason=reason)

    def reattempt(self, wait: timedelta | None = None, rewind: bool = False, reason: str = "") -> NoReturn:
        """End this attempt and schedule another of the same step after ``wait``."""
        self._in_step("reattempt()").leave("reattempt", wait=wait, rewind=rewind, reason=reason)

    def suspend(self, wait: timedelta | None = None) -> NoReturn:
        """End this execution of a resumable step; another one continues from the cursor after ``wait``."""
        self._in_step("suspend()").leave("suspend", wait=wait)

    @alters_data
    def pause(self, *, by: AbstractBaseUser | str | None = None, reason: str = "") -> Self:
        """Pause after the running step, or now. Inside a step: end it and pause.

        Raises
        ------
        InvalidStateError
            The workflow is not ready or performing.
        """
        if self._step is not None:
            self._step.leave("pause", reason=reason)
        lifecycle("pause", self, by=by, reason=reason)
        return self

    @alters_data
    def resume(self, *, by: AbstractBaseUser | str | None = None, reason: str = "") -> Self:
        """Continue with the scheduled execution, or with a new attempt at the next step.

        Raises
        ------
        InvalidStateError
            The workflow is not paused, and no pause was requested.
        StepNotDefinedError
            The step is undeclared; the workflow stays paused.
        """
        lifecycle("resume", self, by=by, reason=reason)
        return self

    @alters_data
    def resume_at(self, step: str, *, by: AbstractBaseUser | str | None = None, reason: str = "") -> Self:
        """Continue from ``step``, now, whatever was scheduled: an operator's decision.

        Raises
        ------
        InvalidStateError
            The workflow is not paused.
        StepNotDefinedError
            The step is undeclared or a gravestone; the workflow stays paused.
        """
        lifecycle("resume_at", self, step, by=by, reason=reason)
        return self

    @alters_data
    def skip(self, *, by: AbstractBaseUser | str | None = None, reason: str = "") -> Self:
        """Skip the scheduled or next step. Inside a step: end it as skipped.

        Raises
        ------
        InvalidStateError
            The workflow is neither ready nor paused.
        StepNotDefinedError
            The step is undeclared; nothing changes.
        """
        if self._step is not None:
            self._step.leave("skip", reason=reason)
        lifecycle("skip", self, by=by, reason=reason)
        return self

    @alters_data
    def cancel(self, *, by: AbstractBaseUser | str | None = None, reason: str = "") -> Self:
        """Cancel the workflow. A running step finishes and is recorded as canceled; no step follows.

        The hero's slot is free at once, even while that step still runs.

        Raises
        ------
        InvalidStateError
            The workflow is finished or canceled.
        """
        if self._step is not None:
            self._step.leave("cancel", reason=reason)
        lifecycle("cancel", self, by=by, reason=reason)
        return self

    @alters_data
    def reschedule(
        self, at: datetime | None = None, *, by: AbstractBaseUser | str | None = None, reason: str = ""
    ) -> Self:
        """Move the scheduled step to ``at``, or to now.

        On a paused workflow the step keeps its new time and runs after ``resume()``.

        Raises
        ------
        InvalidStateError
            No step is scheduled.
        """
        lifecycle("reschedule", self, at, by=by, reason=reason)
        return self

    @alters_data
    def signal(self, name: str, payload: Any = None, *, idempotency_key: str | None = None) -> Signal:
        """Send an event to the workflow, in the caller's transaction.

        A step that waits for it is scheduled for now; otherwise the signal is stored until a step waits for it.

        Parameters
        ----------
        name
            The name that a step gives in ``wait_for``.
        payload
            Any storable value, of at most ``MAX_PAYLOAD_BYTES`` of JSON.
        idempotency_key
            A second signal with the same name and key changes nothing: give the event's id if it may come twice.

        Returns
        -------
        Signal
            The new row, or the first one with that key, with ``duplicate`` set.

        Raises
        ------
        WorkflowNotOngoing
            It is finished, canceled or gone, and has no signal under that key.
        InvalidSignalError, PayloadError
            The name, the key or the payload cannot be stored.
        InvalidStateError
            Called in a condition or a matcher.
        """
        if self._step is not None and self._step.only_reads:
            raise InvalidStateError(
                f"{self}: signal() was called in a condition or a matcher. Conditions and matchers "
                "must not change the workflow."
            )
        sent: Signal = lifecycle("send_signal", self, name, payload, idempotency_key=idempotency_key)
        return sent
