"""The options of a step: which there are, and what each accepts.

An option that is not in the table is refused, so a new one needs one line here, and its field in
`StepDefinition` and `StepOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from geneva_drive.definition.blueprint import Blueprint, Place
from geneva_drive.definition.conditions import Condition, checked_condition
from geneva_drive.definition.durations import checked_duration
from geneva_drive.definition.matchers import checked_matcher
from geneva_drive.definition.options import JOB_OPTIONS, checked_priority, checked_queue
from geneva_drive.definition.policy_checks import checked_step_policies

__all__ = ["CRASH_ACTIONS", "RESUMABLE_OPTIONS", "STEP_OPTIONS", "TIMEOUT_ACTIONS", "checked_step_options"]

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
