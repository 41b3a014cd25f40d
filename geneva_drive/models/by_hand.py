"""What moves a workflow from outside of its steps: the verbs of operators, and signals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

from geneva_drive.exceptions import InvalidStateError
from geneva_drive.lifecycle import controls, signaling
from geneva_drive.models.alters_data import alters_data
from geneva_drive.models.in_step import InStep

if TYPE_CHECKING:
    from datetime import datetime

    from django.contrib.auth.models import AbstractBaseUser

    from geneva_drive.models.signal import Signal
    from geneva_drive.models.workflow import Workflow

__all__ = ["ByHand"]


class ByHand(InStep):
    """One verb for each permission of an operator but starting.

    Inside a step ``pause``, ``skip`` and ``cancel`` are flow control: they end the body.
    """

    @alters_data
    def pause(self, *, by: AbstractBaseUser | str | None = None, reason: str = "") -> Self:
        """Stop after the step in flight, or now. Inside a step: end it and pause.

        Raises
        ------
        InvalidStateError
            The workflow is not ready or performing.
        """
        if self._step is not None:
            self._step.leave("pause", reason=reason)
        controls.pause(_row(self), by=by, reason=reason)
        return self

    @alters_data
    def resume(self, *, by: AbstractBaseUser | str | None = None, reason: str = "") -> Self:
        """Go on: with what was scheduled, or with a new attempt at the step pointed at.

        Raises
        ------
        InvalidStateError
            The workflow is neither paused nor asked to pause.
        StepNotDefinedError
            The step is not defined in this code; the workflow stays paused.
        """
        controls.resume(_row(self), by=by, reason=reason)
        return self

    @alters_data
    def resume_at(self, step: str, *, by: AbstractBaseUser | str | None = None, reason: str = "") -> Self:
        """Go on from ``step``, now, whatever was scheduled. Deliberately a person's decision.

        Raises
        ------
        InvalidStateError
            The workflow is not paused.
        StepNotDefinedError
            The step is not defined, or is a gravestone; the workflow stays paused.
        """
        controls.resume_at(_row(self), step, by=by, reason=reason)
        return self

    @alters_data
    def skip(self, *, by: AbstractBaseUser | str | None = None, reason: str = "") -> Self:
        """Pass over the step that is scheduled or pointed at. Inside a step: end it as skipped.

        Raises
        ------
        InvalidStateError
            The workflow is neither ready nor paused.
        StepNotDefinedError
            The step is not defined in this code; nothing changes.
        """
        if self._step is not None:
            self._step.leave("skip", reason=reason)
        controls.skip(_row(self), by=by, reason=reason)
        return self

    @alters_data
    def cancel(self, *, by: AbstractBaseUser | str | None = None, reason: str = "") -> Self:
        """End it. A step in flight finishes and is recorded as canceled; nothing follows.

        The hero's slot is free at once, also while the old body still runs.

        Raises
        ------
        InvalidStateError
            The workflow is finished or canceled.
        """
        if self._step is not None:
            self._step.leave("cancel", reason=reason)
        controls.cancel(_row(self), by=by, reason=reason)
        return self

    @alters_data
    def reschedule(
        self, at: datetime | None = None, *, by: AbstractBaseUser | str | None = None, reason: str = ""
    ) -> Self:
        """Move the scheduled step in time: to ``at``, or to now.

        On a paused workflow the step keeps its new time and runs after ``resume()``.

        Raises
        ------
        InvalidStateError
            No step is scheduled.
        """
        controls.reschedule(_row(self), at, by=by, reason=reason)
        return self

    @alters_data
    def signal(self, name: str, payload: Any = None, *, idempotency_key: str | None = None) -> Signal:
        """Tell the workflow of an event, in the caller's transaction: it happens if that commits.

        A step that waits for it is scheduled for now; otherwise the signal is kept until a step waits for it.

        Parameters
        ----------
        name
            What steps say in ``wait_for``.
        payload
            Any storable value, of at most ``MAX_PAYLOAD_BYTES`` of JSON.
        idempotency_key
            The same name and key again change nothing: use the event's id where events may come twice.

        Returns
        -------
        Signal
            The new row, or the first one under that key, with ``duplicate`` set.

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
                f"{self}: signal() was called in a condition or a matcher. They only look."
            )
        return signaling.send(_row(self), name, payload, idempotency_key=idempotency_key)


def _row(workflow: ByHand) -> Workflow:
    # Only a workflow has these verbs, but that class stands above this module.
    return cast("Workflow", workflow)
