"""Job options: how an execution reaches a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.utils.timezone import is_naive

from geneva_drive.definition.durations import checked_duration
from geneva_drive.exceptions import StepConfigurationError

__all__ = ["JOB_OPTIONS", "checked_priority", "checked_queue", "merge", "validate"]

LONGEST_QUEUE_NAME: Final = 100
"""Characters."""

LARGEST_PRIORITY: Final = 2**31 - 1
"""The column holds 32 bits."""


def checked_queue(value: Any, name: str = "queue") -> str:
    """Return `value` if it names a queue. Raises ValueError."""
    if not isinstance(value, str) or not value or value != value.strip():
        raise ValueError(f"{name}={value!r} is not a queue's name. Give a text such as {name}='mail'.")
    if "," in value or "\0" in value:
        # The worker's --queues takes a list that is separated by commas.
        raise ValueError(f"{name}={value!r} has a comma or a NUL. Leave it out of the queue's name.")
    if len(value) > LONGEST_QUEUE_NAME:
        raise ValueError(f"{name}={value!r} is longer than {LONGEST_QUEUE_NAME} characters. Shorten it.")
    return str.__str__(value)  # A member of an enumeration is stored by its value, not by its name.


def checked_priority(value: Any, name: str = "priority") -> int:
    """Return `value` if it is a priority: a whole number, lower runs first. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name}={value!r} is not a whole number. Give one; lower runs first.")
    if not -LARGEST_PRIORITY <= value <= LARGEST_PRIORITY:
        raise ValueError(f"{name}={value!r} is out of range. Stay within ±{LARGEST_PRIORITY}.")
    return int(value)


def _checked_moment(value: Any, name: str = "wait_until") -> datetime:
    if not isinstance(value, datetime):
        raise ValueError(f"{name}={value!r} is not a moment. Give a datetime, or a duration as wait=.")
    if is_naive(value) is settings.USE_TZ:
        odd = "naive" if settings.USE_TZ else "aware"
        raise ValueError(
            f"{name}={value!r} is {odd}, and USE_TZ is {settings.USE_TZ}. Start from Django's timezone.now()."
        )
    return value


JOB_OPTIONS: Final[dict[str, Callable[[Any, str], Any]]] = {
    "queue": checked_queue,
    "priority": checked_priority,
    "wait": checked_duration,
    "wait_until": _checked_moment,
}
"""Every known option, with what checks it."""


def validate(options: Any, where: str) -> dict[str, Any]:
    """Return a copy of `options` if every key and value can be used.

    Parameters
    ----------
    options
        A mapping of the keys of `JOB_OPTIONS`, or None for no options. A value of None is left out.
    where
        Where they were written, for the message: ``"OrderWorkflow.job_options"``.

    Raises
    ------
    StepConfigurationError
        Something else was given, a key is unknown, or a value is no use.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise StepConfigurationError(f"{where}: {options!r} is not a dict of job options. Give a dict.")
    if unknown := [key for key in options if key not in JOB_OPTIONS]:
        known = ", ".join(JOB_OPTIONS)
        raise StepConfigurationError(f"{where}: {unknown[0]!r} is not a job option. There are: {known}.")
    checked: dict[str, Any] = {}
    for key, value in options.items():
        if value is not None:
            try:
                checked[key] = JOB_OPTIONS[key](value, key)
            except ValueError as error:
                raise StepConfigurationError(f"{where}: {error}") from None
    if "wait" in checked and "wait_until" in checked:
        raise StepConfigurationError(f"{where}: wait and wait_until contradict each other. Keep one of them.")
    return checked


def merge(*layers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options that hold when later layers win: the class's, the instance's, the step's.

    ``wait`` and ``wait_until`` are two ways to say one thing, so a later layer's one replaces either.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        if layer:
            if "wait" in layer or "wait_until" in layer:
                merged.pop("wait", None)
                merged.pop("wait_until", None)
            merged.update(layer)
    return merged
