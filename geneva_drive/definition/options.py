"""Job options: how an execution reaches a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.utils.timezone import is_naive

from geneva_drive.definition.conditions import Condition, checked_condition
from geneva_drive.definition.matchers import checked_matcher
from geneva_drive.definition.policy_checks import checked_step_policies
from geneva_drive.definition.validation import Blueprint, Place, checked_duration
from geneva_drive.exceptions import StepConfigurationError

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


CRASH_ACTIONS: Final = ("reattempt", "pause", "cancel")
TIMEOUT_ACTIONS: Final = ("skip", "cancel", "pause")

Check = Callable[[Any, str, Blueprint, Place], Any]


def _plainly(check: Callable[[Any, str], Any]) -> Check:
    """Turn a check that knows no class into one that names it."""

    def checked(value: Any, option: str, blueprint: Blueprint, place: Place) -> Any:  # noqa: ARG001
        try:
            return check(value, option)
        except ValueError as error:
            raise place.error(str(error)) from None

    return checked


def _checked_flag(value: Any, option: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{option}={value!r} is neither True nor False. Give one of them.")
    return value


def _checked_former_names(value: Any, option: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise ValueError(f"{option}={value!r} is a text. Give a list of names: {option}=[{value!r}].")
    if not isinstance(value, list | tuple | set | frozenset):
        raise ValueError(f"{option}={value!r} is not a list of names. Give one: {option}=['old_name'].")
    for name in value:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"{option}={value!r}: {name!r} cannot have been a step's name. Correct it.")
    return tuple(value)


def _one_of(*actions: str) -> Check:
    def check(value: Any, option: str) -> str:
        for action in actions:
            if value == action:
                return action
        raise ValueError(f"{option}={value!r} is unknown. Give one of: {', '.join(actions)}.")

    return _plainly(check)


def _checked_limit(value: Any, option: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{option}={value!r} is not a number of items. Give an integer from 1.")
    if value < 1:
        raise ValueError(f"{option}={value!r} would let no item through. Give an integer from 1.")
    return value


def _checked_runtime(value: Any, option: str) -> timedelta:
    duration = checked_duration(value, option)
    if not duration:
        raise ValueError(f"{option}={value!r} is no time at all. Give a longer timedelta.")
    return duration


def _checked_interval(value: Any, option: str) -> int | timedelta:
    if isinstance(value, timedelta):
        return _checked_runtime(value, option)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(
            f"{option}={value!r} is neither a number of items nor a timedelta. Give one of them, such as "
            f"{option}=100 or {option}=timedelta(seconds=5)."
        )
    return _checked_limit(value, option)


STEP_OPTIONS: Final[dict[str, Check]] = {
    "wait": _plainly(checked_duration),
    "skip_if": checked_condition,
    "run_if": checked_condition,
    # Where they are looked at, in the order of the class, both were found to be a name.
    "before": _plainly(lambda value, _: value),
    "after": _plainly(lambda value, _: value),
    "formerly": _plainly(_checked_former_names),
    "atomic": _plainly(_checked_flag),
    "queue": _plainly(checked_queue),
    "priority": _plainly(checked_priority),
    "on_crash": _one_of(*CRASH_ACTIONS),
    "on_exception": checked_step_policies,
    "wait_for": _plainly(checked_matcher),
    "timeout": _plainly(checked_duration),
    "on_timeout": _one_of(*TIMEOUT_ACTIONS),
}

RESUMABLE_OPTIONS: Final[dict[str, Check]] = {
    "max_iterations": _plainly(_checked_limit),
    "max_runtime": _plainly(_checked_runtime),
    "checkpoint_every": _plainly(_checked_interval),
}
"""What ``@resumable_step`` takes beside them. It does not take ``atomic``."""


def checked_step_options(
    given: Mapping[str, Any], blueprint: Blueprint, place: Place, *, resumable: bool = False
) -> dict[str, Any]:
    """Return the fields of a `StepDefinition` that these options, as they were written, stand for.

    An option that is None counts as not given.

    Raises
    ------
    StepConfigurationError
        An option is unknown, is no use, or contradicts another one.
    """
    table = {**STEP_OPTIONS, **RESUMABLE_OPTIONS} if resumable else STEP_OPTIONS
    if unknown := [option for option in given if option not in table]:
        known = ", ".join(option for option in table if not (resumable and option == "atomic"))
        what = f"{unknown[0]}={given[unknown[0]]!r} is"
        if unknown[0] in RESUMABLE_OPTIONS:
            raise place.error(f"{what} for loops. Declare it with @resumable_step, or take the option out.")
        raise place.error(f"{what} not an option of a step. Options are: {known}.")
    written = {option: value for option, value in given.items() if value is not None}
    if resumable and written.get("atomic"):
        raise place.error(
            f"atomic={written['atomic']!r} would keep a transaction open for the whole loop, and take every "
            "checkpoint back with it. Leave it out; use transaction.atomic() for a single item."
        )
    if "skip_if" in written and "run_if" in written:
        raise place.error(
            f"skip_if={written['skip_if']!r} and run_if={written['run_if']!r} exclude each other. Keep one."
        )
    for option, needed in (("timeout", "wait_for"), ("on_timeout", "timeout")):
        if option in written and needed not in written:
            raise place.error(
                f"{option}={written[option]!r} is of no use without {needed}=…. Give both, or neither."
            )
    checked = {option: table[option](value, option, blueprint, place) for option, value in written.items()}
    checked["skip_if"] = _as_skip_if(checked.get("skip_if"), checked.pop("run_if", None))
    checked["options"] = {option: checked[option] for option in JOB_OPTIONS if option in checked}
    checked.setdefault("wait", timedelta(0))
    checked["policies"] = checked.pop("on_exception", ())
    return checked


def _as_skip_if(skip_if: Condition | None, run_if: Condition | None) -> Condition | None:
    if run_if is not None:
        skip_if = Condition(run_if.test, negated=True, name=run_if.name)
    if skip_if is not None and isinstance(skip_if.test, bool) and skip_if.test is skip_if.negated:
        return None  # A constant that never holds is no condition to ask.
    return skip_if
