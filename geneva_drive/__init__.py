"""Durable, multi-step workflows for Django, safe when code changes under them.

The public names are imported when they are first used, so that the package can be imported before Django is
set up.
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
        StepNotDefinedError,
        WorkflowNotOngoing,
    )
    from geneva_drive.execution.iteration import Iteration
    from geneva_drive.models import Signal, StepExecution, Workflow, WorkflowRelation

__version__ = "0.1.0"

_MODULES = (
    "exceptions",
    "definition.conditions",
    "definition.matchers",
    "definition.policies",
    "definition.steps",
    "models",
    "execution.iteration",
)

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
    if name in __all__:
        for module in _MODULES:
            home = import_module(f"{__name__}.{module}")
            if hasattr(home, name):
                globals()[name] = value = getattr(home, name)
                return value
    raise AttributeError(f"module 'geneva_drive' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
