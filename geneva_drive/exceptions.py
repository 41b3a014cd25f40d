"""Every error that the library raises.

::

    GenevaDriveError
    ├── StepConfigurationError      (also ImproperlyConfigured)  a class that cannot work
    ├── InvalidStateError           the row is not in a state that allows this
    ├── StepNotDefinedError         a row names a step that this code does not declare
    ├── WorkflowNotDefinedError     a row names a class that this code does not declare
    ├── AlreadyOngoingError         (also IntegrityError)  the hero has one already
    ├── WorkflowNotOngoing          a signal for a workflow that is finished, canceled or gone
    ├── InvalidSignalError          (also ValueError)  a signal's name or key that cannot be one
    ├── SignalWaitTimeout           recorded on a step that was not signaled in time
    ├── HeroError
    │   ├── HeroKeyError            a key that the column cannot hold
    │   ├── HeroRequiredError       no hero, on a class that needs one
    │   └── HeroModelGone           the hero's model is not installed any more
    ├── PayloadError                (also ValueError)  cannot be stored as JSON
    │   └── PayloadTooLargeError
    ├── ProcessDied                 recorded on an execution whose process died
    └── DispatcherError             a dispatcher that cannot be used
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError

__all__ = [
    "AlreadyOngoingError",
    "DispatcherError",
    "GenevaDriveError",
    "HeroError",
    "HeroKeyError",
    "HeroModelGone",
    "HeroRequiredError",
    "InvalidSignalError",
    "InvalidStateError",
    "PayloadError",
    "PayloadTooLargeError",
    "ProcessDied",
    "SignalWaitTimeout",
    "StepConfigurationError",
    "StepNotDefinedError",
    "WorkflowNotDefinedError",
    "WorkflowNotOngoing",
]


class GenevaDriveError(Exception):
    """The root of every error of this library."""


class StepConfigurationError(GenevaDriveError, ImproperlyConfigured):
    """A workflow class, a step or a setting of either is wrong. Raised when the class is made."""


class InvalidStateError(GenevaDriveError):
    """The workflow or execution is in a state that does not allow what was asked for."""


class StepNotDefinedError(GenevaDriveError):
    """A row names a step that the code does not declare, or that it declares as removed."""


class WorkflowNotDefinedError(GenevaDriveError):
    """A row names a workflow class that the code does not declare."""


class AlreadyOngoingError(GenevaDriveError, IntegrityError):
    """The hero has an ongoing workflow of this type already.

    Attributes
    ----------
    workflow
        The existing workflow, or None when it ended before it could be read.
    """

    def __init__(self, message: str, *, workflow: Any | None = None) -> None:
        super().__init__(message)
        self.workflow = workflow


class WorkflowNotOngoing(GenevaDriveError):
    """A signal was sent to a workflow that is finished, canceled or gone. Nothing was written."""


class InvalidSignalError(GenevaDriveError, ValueError):
    """A signal's name or idempotency key is empty, too long, or cannot be stored. Nothing was written."""


class SignalWaitTimeout(GenevaDriveError):
    """A step waited for a signal, and none that it waits for came within its ``timeout``."""


class HeroError(GenevaDriveError):
    """Something about the hero is wrong."""


class HeroKeyError(HeroError):
    """The hero's key does not fit the column that holds it. It is refused, never cast or cut."""


class HeroRequiredError(HeroError):
    """A workflow was started without a hero although its class may not proceed without one."""


class HeroModelGone(HeroError, LookupError):
    """The model of the hero is not installed any more. A failing look-up, not a missing hero."""


class PayloadError(GenevaDriveError, ValueError):
    """A value cannot be stored. The message names the path inside the value."""


class PayloadTooLargeError(PayloadError):
    """A value is larger, in bytes of its stored JSON, than the settings allow."""


class ProcessDied(GenevaDriveError):
    """Recorded, never raised: the process died, or gave up, in the middle of a step."""


class DispatcherError(GenevaDriveError):
    """A dispatcher cannot be used as it is configured."""
