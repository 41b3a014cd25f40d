"""Durable, multi-step workflows for Django, safe when code changes under them.

The public names are loaded when first asked for, so that importing the package needs no set-up
Django.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geneva_drive.definition.conditions import cancel_if
    from geneva_drive.definition.matchers import SignalMatcher
    from geneva_drive.definition.policies import ExceptionPolicy, on_exception
    from geneva_drive.definition.steps import removed_step, resumable_step, step
    from geneva_drive.exceptions import (
        AlreadyOngoingError,
        GenevaDriveError,
        HeroKeyError,
        HeroModelGone,
        HeroRequiredError,
        InvalidSignalError,
        InvalidStateError,
        PayloadError,
        PayloadTooLargeError,
        SignalWaitTimeout,
        StepConfigurationError,
        StepFailed,
        StepNotDefinedError,
        WorkflowNotOngoing,
    )
    from geneva_drive.execution.iteration import Iteration
    from geneva_drive.models import Signal, StepExecution, Workflow, WorkflowRelation

__version__ = "0.1.0"

_HOMES = {
    "geneva_drive.definition.conditions": ["cancel_if"],
    "geneva_drive.definition.matchers": ["SignalMatcher"],
    "geneva_drive.definition.policies": ["ExceptionPolicy", "on_exception"],
    "geneva_drive.definition.steps": ["removed_step", "resumable_step", "step"],
    "geneva_drive.exceptions": [
        "AlreadyOngoingError",
        "GenevaDriveError",
        "HeroKeyError",
        "HeroModelGone",
        "HeroRequiredError",
        "InvalidSignalError",
        "InvalidStateError",
        "PayloadError",
        "PayloadTooLargeError",
        "SignalWaitTimeout",
        "StepConfigurationError",
        "StepFailed",
        "StepNotDefinedError",
        "WorkflowNotOngoing",
    ],
    "geneva_drive.execution.iteration": ["Iteration"],
    "geneva_drive.models": ["Signal", "StepExecution", "Workflow", "WorkflowRelation"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AlreadyOngoingError",
    "ExceptionPolicy",
    "GenevaDriveError",
    "HeroKeyError",
    "HeroModelGone",
    "HeroRequiredError",
    "InvalidSignalError",
    "InvalidStateError",
    "Iteration",
    "PayloadError",
    "PayloadTooLargeError",
    "Signal",
    "SignalMatcher",
    "SignalWaitTimeout",
    "StepConfigurationError",
    "StepExecution",
    "StepFailed",
    "StepNotDefinedError",
    "Workflow",
    "WorkflowNotOngoing",
    "WorkflowRelation",
    "cancel_if",
    "on_exception",
    "removed_step",
    "resumable_step",
    "step",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'geneva_drive' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
