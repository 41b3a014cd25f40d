"""The options of steps and of jobs: what each one means, and which values it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, get_args

from django.conf import settings
from django.utils.timezone import is_naive

from geneva_drive.definition.collection import OnCrash, OnTimeout
from geneva_drive.definition.conditions import Condition, checked_condition
from geneva_drive.definition.matchers import checked_matcher
from geneva_drive.definition.policy_checks import checked_step_policies
from geneva_drive.definition.validation import Blueprint, Place, checked_choice, checked_duration
from geneva_drive.exceptions import StepConfigurationError

LONGEST_QUEUE_NAME: Final = 100
"""Characters."""

LARGEST_PRIORITY: Final = 2**31 - 1
"""The column holds 32 bits."""


def checked_queue(value: Any, name: str = "queue") -> str:
    """Return `value` if it can be a queue's name. Raises ValueError."""
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
        raise ValueError(f"{name}={value!r} is not a datetime. Give one, or a duration as wait=.")
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
"""Every job option, with its check."""


def validate(options: Any, where: str) -> dict[str, Any]:
    """Return a copy of these job options, checked.

    Parameters
    ----------
    options
        A mapping of the keys of `JOB_OPTIONS`, or None for no options. A value of None counts as not given.
    where
        Where they were written, for the message: ``"OrderWorkflow.job_options"``.

    Raises
    ------
    StepConfigurationError
        Something else was given, a key is unknown, or a value is wrong.
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
    """Return the job options that apply. Later layers win: the class's, the instance's, the step's.

    ``wait`` and ``wait_until`` both set the time, so either one replaces both of an earlier layer.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        if layer:
            if "wait" in layer or "wait_until" in layer:
                merged.pop("wait", None)
                merged.pop("wait_until", None)
            merged.update(layer)
    return merged


Check = Callable[[Any, str, Blueprint, Place], Any]


def _plainly(check: Callable[[Any, str], Any]) -> Check:
    """Turn a check of the value alone into one whose error names the class and the step."""

    def checked(value: Any, option: str, blueprint: Blueprint, place: Place) -> Any:  # noqa: ARG001
        return place.check(check, value, option)

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


def _checked_limit(value: Any, option: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{option}={value!r} is not a number of items. Give an integer of 1 or more.")
    if value < 1:
        raise ValueError(f"{option}={value!r} would let no item through. Give an integer of 1 or more.")
    return value


def _checked_runtime(value: Any, option: str) -> timedelta:
    duration = checked_duration(value, option)
    if not duration:
        raise ValueError(f"{option}={value!r} is zero. Give a longer timedelta.")
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


class StepOption(NamedTuple):
    """What the reference says of an option, its check, and where it may be given."""

    text: str
    check: Check
    of_steps: bool = True
    of_resumable_steps: bool = True
    of_series: bool = True


STEP_OPTIONS: Final[dict[str, StepOption]] = {
    "wait": StepOption(
        "A timedelta of zero or more: how long after it is scheduled the step becomes due.",
        _plainly(checked_duration),
        of_series=False,
    ),
    "skip_if": StepOption(
        "A callable of the workflow, a method's name or a boolean, evaluated before each attempt. The step is\n"
        "skipped if it holds.",
        checked_condition,
    ),
    "run_if": StepOption(
        "The opposite of ``skip_if``: the step is skipped if it does not hold. Give at most one of the two.",
        checked_condition,
    ),
    "wait_for": StepOption(
        "A signal's name, a `SignalMatcher`, or any object with ``matches(signal)``: the step runs once such a\n"
        "signal has arrived, and reads it as ``self.received_signal``. With ``wait``, that time passes first.",
        _plainly(checked_matcher),
    ),
    "timeout": StepOption(
        "A timedelta: how long to wait for the signal, counted from when the step is due and has none.",
        _plainly(checked_duration),
    ),
    "on_timeout": StepOption(
        'What happens then: ``"skip"`` the step, ``"cancel"`` or ``"pause"`` the workflow. Default: the exception\n'
        "policies decide about a `SignalWaitTimeout`; without one the workflow pauses.",
        _plainly(partial(checked_choice, choices=get_args(OnTimeout))),
    ),
    # Names of steps are checked where the steps are put in order.
    "before": StepOption(
        "The name of an earlier step, directly before which this one is placed.",
        _plainly(lambda value, _: value),
    ),
    "after": StepOption(
        "The name of an earlier step, directly after which this one is placed. Give at most one of the two.",
        _plainly(lambda value, _: value),
    ),
    "formerly": StepOption(
        "Older names of the step: rows that still have one run this step.",
        _plainly(_checked_former_names),
        of_series=False,
    ),
    "atomic": StepOption(
        "Run the body and record its completion in one transaction.",
        _plainly(_checked_flag),
        of_resumable_steps=False,
    ),
    "queue": StepOption(
        "The queue's name. Default: the workflow's, else the setting ``DEFAULT_QUEUE``.",
        _plainly(checked_queue),
    ),
    "priority": StepOption("An integer. Lower runs first.", _plainly(checked_priority)),
    "on_crash": StepOption(
        'What recovery does if the process dies in the step: ``"reattempt"``, ``"pause"`` or ``"cancel"``.\n'
        "Default: the setting ``RECOVERY_ACTION``.",
        _plainly(partial(checked_choice, choices=get_args(OnCrash))),
    ),
    "on_exception": StepOption(
        'What happens to the workflow if the step raises: ``"pause"``, ``"cancel"``, ``"skip"``,\n'
        '``"reattempt"``, an `ExceptionPolicy`, or a list of these.',
        checked_step_policies,
    ),
    "max_iterations": StepOption(
        "An integer from 1: the execution ends after so many items, and another one continues.",
        _plainly(_checked_limit),
        of_steps=False,
    ),
    "max_runtime": StepOption(
        "A positive timedelta: the execution ends at the first item after that time, and another one continues.",
        _plainly(_checked_runtime),
        of_steps=False,
    ),
    "checkpoint_every": StepOption(
        "When to save the cursor: after so many items (an integer from 1), or when so much time has passed since\n"
        "it was last saved (a positive timedelta). Default: 1, after each item. After a crash the items since the\n"
        "last checkpoint run again: at most ``checkpoint_every`` items, or the items of that time and one more. An\n"
        "exception, a pause, a cancel and a worker that shuts down repeat nothing, whatever is given here.",
        _plainly(_checked_interval),
        of_steps=False,
    ),
}
"""Every option of ``@step`` and ``@resumable_step``. Their signatures have the same ones, in this order."""


def options_of(resumable: bool) -> dict[str, StepOption]:
    """Return the options of one of the two decorators."""
    return {
        name: option
        for name, option in STEP_OPTIONS.items()
        if (option.of_resumable_steps if resumable else option.of_steps)
    }


def checked_step_options(
    given: Mapping[str, Any], blueprint: Blueprint, place: Place, *, resumable: bool = False
) -> dict[str, Any]:
    """Return the fields of a `StepDefinition` for these options, as they were written.

    An option that is None counts as not given.

    Raises
    ------
    StepConfigurationError
        An option is unknown, has a wrong value, or contradicts another one.
    """
    written = {option: value for option, value in given.items() if value is not None}
    known = options_of(resumable)
    for option, value in given.items():
        if option not in STEP_OPTIONS:
            raise place.error(
                f"{option}={value!r} is not an option of a step. Options are: {', '.join(known)}."
            )
        if not resumable and option not in known:
            raise place.error(
                f"{option}={value!r} is for loops. Declare it with @resumable_step, or take the option out."
            )
    if resumable and written.get("atomic"):
        raise place.error(
            f"atomic={written['atomic']!r} would keep one transaction open for the whole loop, and roll back every "
            "checkpoint with it. Leave it out; use transaction.atomic() for a single item."
        )
    if "skip_if" in written and "run_if" in written:
        raise place.error(
            f"skip_if={written['skip_if']!r} and run_if={written['run_if']!r} exclude each other. Keep one."
        )
    for option, needed in (("timeout", "wait_for"), ("on_timeout", "timeout")):
        if option in written and needed not in written:
            raise place.error(
                f"{option}={written[option]!r} has no effect without {needed}=…. Give both, or neither."
            )
    checked = {
        option: STEP_OPTIONS[option].check(value, option, blueprint, place)
        for option, value in written.items()
    }
    for option in ("before", "after"):
        checked.pop(option, None)
    checked["skip_if"] = _as_skip_if(checked.get("skip_if"), checked.pop("run_if", None))
    checked["options"] = {option: checked[option] for option in JOB_OPTIONS if option in checked}
    checked.setdefault("wait", timedelta(0))
    checked["policies"] = checked.pop("on_exception", ())
    return checked


def _as_skip_if(skip_if: Condition | None, run_if: Condition | None) -> Condition | None:
    if run_if is not None:
        skip_if = Condition(run_if.test, negated=True, name=run_if.name)
    if skip_if is not None and isinstance(skip_if.test, bool) and skip_if.test is skip_if.negated:
        return None  # A constant that never holds.
    return skip_if
