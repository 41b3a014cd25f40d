"""The errors of the library.

::

    GenevaDriveError
    ├── StepConfigurationError      (also ImproperlyConfigured)  a class that cannot work
    ├── InvalidStateError           the row is not in a state that allows this
    ├── StepNotDefinedError         a row names an undeclared step
    ├── WorkflowNotDefinedError     a row names an undeclared class
    ├── AlreadyOngoingError         (also IntegrityError)  the hero has an ongoing workflow already
    ├── WorkflowNotOngoing          a signal for a workflow that is finished, canceled or deleted
    ├── InvalidSignalError          (also ValueError)  a signal's name or key is not valid
    ├── SignalWaitTimeout           recorded on a step whose signal did not arrive in time
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
    """The base class of all errors of this library."""


class StepConfigurationError(GenevaDriveError, ImproperlyConfigured):
    """A workflow class or a step is declared in a wrong way. Raised when the class is made."""


class InvalidStateError(GenevaDriveError):
    """The state of the workflow or execution does not allow the operation."""


class StepNotDefinedError(GenevaDriveError):
    """A row names a step that is undeclared, or declared as removed."""


class WorkflowNotDefinedError(GenevaDriveError):
    """A row names a workflow class that is undeclared."""


class AlreadyOngoingError(GenevaDriveError, IntegrityError):
    """The hero has an ongoing workflow of this type already.

    Attributes
    ----------
    workflow
        The existing workflow, or None if it ended before it could be read.
    """

    def __init__(self, message: str, *, workflow: Any | None = None) -> None:
        super().__init__(message)
        self.workflow = workflow


class WorkflowNotOngoing(GenevaDriveError):
    """A signal was sent to a workflow that is finished, canceled or deleted. Nothing was written."""


class InvalidSignalError(GenevaDriveError, ValueError):
    """A signal's name or idempotency key is empty, too long, or cannot be stored. Nothing was written."""


class SignalWaitTimeout(GenevaDriveError):
    """A step waited for a signal, and none arrived within its ``timeout``."""


class HeroError(GenevaDriveError):
    """Something about the hero is wrong."""


class HeroKeyError(HeroError):
    """The hero's key does not fit the column. It is never cast or cut."""


class HeroRequiredError(HeroError):
    """A workflow was started without a hero although its class may not proceed without one."""


class HeroModelGone(HeroError, LookupError):
    """The model of the hero is not installed any more, so nobody knows whether the hero still exists."""


class PayloadError(GenevaDriveError, ValueError):
    """A value cannot be stored. The message has the path inside the value."""


class PayloadTooLargeError(PayloadError):
    """A value has more bytes, as JSON, than the settings allow."""


class ProcessDied(GenevaDriveError):
    """Recorded, never raised: the process died or was force-stopped while running a step."""


class DispatcherError(GenevaDriveError):
    """A dispatcher cannot be used as it is configured."""
