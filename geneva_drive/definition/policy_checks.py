"""Checks of exception policies, from what the author wrote to a `Policy`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from geneva_drive.definition.policies import (
    BACKOFFS,
    DEFAULT_MAX_REATTEMPTS,
    DeclaredHandler,
    ExceptionPolicy,
    Policy,
    PolicyAction,
    Report,
)
from geneva_drive.definition.validation import (
    MISSING,
    Blueprint,
    Declared,
    Place,
    checked_choice,
    checked_duration,
    problem_with_call,
    problem_with_function,
    problem_with_signature,
)

ACTIONS: Final = tuple(str(action) for action in PolicyAction)
TERMINAL_ACTIONS: Final = tuple(action for action in ACTIONS if action != PolicyAction.REATTEMPT)
REPORTS: Final = tuple(str(report) for report in Report)
_HANDLER_OPTIONS: Final = ("max_reattempts", "terminal_action", "report")


def checked_step_policies(value: Any, option: str, blueprint: Blueprint, place: Place) -> tuple[Policy, ...]:
    """Return the policies of a step's ``on_exception``: an action, a policy, or a list.

    Raises
    ------
    StepConfigurationError
        One of them cannot work.
    """
    if not isinstance(value, list | tuple):
        return (checked_policy(value, option, blueprint, place),)
    if not value:
        raise place.error(f"{option} is empty, which says nothing. Leave it out.")
    return tuple(
        checked_policy(each, f"{option}[{number}]", blueprint, place) for number, each in enumerate(value)
    )


def checked_class_policies(value: Any, blueprint: Blueprint) -> tuple[Policy, ...]:
    """Return the policies of one class body's ``exception_policies``. Raises StepConfigurationError."""
    place = Place(blueprint.path, "exception_policies", kind="attribute")
    if not isinstance(value, list | tuple):
        raise place.error(f"{value!r} is not a list. Give a list of policies: [ExceptionPolicy(…)].")
    # An empty list is fine here: a class may say that it has none.
    return tuple(
        checked_policy(
            each, f"[{number}]", blueprint, replace(place, location=getattr(each, "location", None))
        )
        for number, each in enumerate(value)
    )


def checked_policy(value: Any, option: str, blueprint: Blueprint, place: Place) -> Policy:
    """Return the policy for an action or an `ExceptionPolicy`. Raises StepConfigurationError."""
    if isinstance(value, str):
        if value not in ACTIONS:
            raise place.error(f"{option}={value!r} is not an action. There are: {', '.join(ACTIONS)}.")
        value = ExceptionPolicy(value)  # type: ignore[arg-type]
    if isinstance(value, DeclaredHandler):
        raise place.error(
            f"{option} is a method under @on_exception, which holds for the whole class. For one step give "
            "ExceptionPolicy(matching=…, handler='method_name')."
        )
    if not isinstance(value, ExceptionPolicy):
        raise place.error(
            f"{option}={value!r} is not a policy. Give one of {', '.join(ACTIONS)}, or an ExceptionPolicy."
        )
    where = f"{option}: {value!r}"
    if value.handler is not None:
        name = _checked_handler(value, where, blueprint, place)
        return Policy(handler=value.handler, name=name, **_common(where, place, **_given(value)))
    if value.action is None:
        raise place.error(
            f"{where} says neither what to do nor who decides. Give an action ({', '.join(ACTIONS)}) or a "
            "handler."
        )
    action = PolicyAction(_choice(value.action, "action", ACTIONS, where, place))
    if action is not PolicyAction.REATTEMPT:
        for name in ("wait", "max_reattempts", "terminal_action"):
            absent = MISSING if name == "max_reattempts" else None
            if getattr(value, name) is not absent:
                raise place.error(
                    f"{where}: {name} is about reattempts, and {str(action)!r} makes none. Leave it out, or "
                    "say 'reattempt'."
                )
    return Policy(
        action=action,
        wait=_wait(value.wait, where, place),
        name=str(action),
        **_common(where, place, **_given(value)),
    )


def checked_handler(name: str, declared: DeclaredHandler, blueprint: Blueprint, place: Place) -> Policy:
    """Return the policy for a method under ``@on_exception``. Raises StepConfigurationError."""
    if isinstance(declared.function, Declared):
        raise place.error("its function is declared as a step or a condition already. Give a plain method.")
    if declared.function is MISSING:
        raise place.error("on_exception(…) decorates nothing. Put it above a method, as @on_exception(…).")
    if unknown := [option for option in declared.options if option not in _HANDLER_OPTIONS]:
        raise place.error(
            f"{unknown[0]}={declared.options[unknown[0]]!r} is not an option of on_exception. Options are: "
            f"{', '.join(_HANDLER_OPTIONS)}; which exceptions are meant comes before them."
        )
    # Also if the class redefines the plain method.
    if problem := problem_with_function(_plain(blueprint.find(name)), "self", "error"):
        raise place.error(problem)
    common = _common("on_exception", place, matching=declared.matching or None, **declared.options)
    return Policy(handler=name, name=name, **common)


def _checked_handler(value: ExceptionPolicy, where: str, blueprint: Blueprint, place: Place) -> str:
    """Return the name of a policy's handler."""
    for name in ("action", "wait"):
        if (given := getattr(value, name)) is not None:
            raise place.error(
                f"{where}: {name}={given!r} and a handler exclude each other, since the handler decides. Keep "
                "one."
            )
    handler = value.handler
    if isinstance(handler, str):
        method = _plain(blueprint.find(handler))
        if method is MISSING:
            raise place.error(
                f"{where}: handler={handler!r} names no method of the class. Define it, or correct the name."
            )
        problem = problem_with_function(method, "self", "error")
    elif isinstance(handler, type) or not callable(handler):
        raise place.error(
            f"{where}: handler={handler!r} is neither a callable of the workflow and the error nor a "
            "method's name. Give one."
        )
    else:
        problem = problem_with_signature(handler, "workflow", "error")
    if problem:
        raise place.error(f"{where}: {problem}")
    return handler if isinstance(handler, str) else getattr(handler, "__name__", type(handler).__name__)


def _plain(value: Any) -> Any:
    return value.function if isinstance(value, DeclaredHandler) else value


def _given(policy: ExceptionPolicy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in ("matching", *_HANDLER_OPTIONS)}


def _common(
    where: str,
    place: Place,
    *,
    matching: Any,
    max_reattempts: Any = MISSING,
    terminal_action: Any = None,
    report: Any = None,
) -> dict[str, Any]:
    """Return the fields that a `Policy` has with and without a handler."""
    if max_reattempts is MISSING:
        max_reattempts = DEFAULT_MAX_REATTEMPTS
    elif max_reattempts is not None and (
        isinstance(max_reattempts, bool) or not isinstance(max_reattempts, int) or max_reattempts < 0
    ):
        raise place.error(
            f"{where}: max_reattempts={max_reattempts!r} is not a whole number from 0. Give one, or None for no "
            "limit."
        )
    return {
        "matchers": _matchers(matching, where, place),
        "cap": None if max_reattempts is None else int(max_reattempts),
        "terminal_action": PolicyAction(
            _choice(
                PolicyAction.PAUSE if terminal_action is None else terminal_action,
                "terminal_action",
                TERMINAL_ACTIONS,
                where,
                place,
            )
        ),
        "report": Report(
            _choice(Report.ALWAYS if report is None else report, "report", REPORTS, where, place)
        ),
    }


def _matchers(value: Any, where: str, place: Place) -> tuple[Any, ...]:
    if value is None:
        return ()
    given = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
    if not given:
        raise place.error(f"{where}: matching is empty, so it fits nothing. Leave it out to fit everything.")
    for each in given:
        if problem := _problem_with_matcher(each):
            raise place.error(f"{where}: matching={each!r} {problem}")
    return given


def _problem_with_matcher(value: Any) -> str | None:
    if isinstance(value, str):
        parts = value.split(".")
        if len(parts) < 2 or not all(part.isidentifier() for part in parts):
            return "is not a dotted name. Give 'package.module.Class', or the class itself."
        return None
    if isinstance(value, type):
        if not issubclass(value, BaseException):
            return "is not an exception class. Give one, or an object (not a class) with matches(error)."
        if not issubclass(value, Exception):
            return (
                "is not an Exception: what ends processes counts as a crash, and a step's on_crash says what "
                "follows. Give Exception or a subclass; for everything, leave matching out."
            )
        return None
    matcher = getattr(value, "matches", None)
    if not callable(matcher):
        return "fits nothing. Give an exception class, its dotted name, or an object with matches(error)."
    problem = problem_with_call(matcher, "matchers", "error")
    return problem and f"cannot be used: {problem}"


def _choice(value: Any, name: str, choices: tuple[str, ...], where: str, place: Place) -> str:
    return place.check(partial(checked_choice, choices=choices), value, f"{where}: {name}")


def _wait(value: Any, where: str, place: Place) -> Any:
    if value is None:
        return timedelta(0)
    if isinstance(value, str):
        if value not in BACKOFFS:
            raise place.error(
                f"{where}: wait={value!r} is not a backoff. There are: {', '.join(BACKOFFS)}; or give a "
                "timedelta, or a callable of the reattempt's number."
            )
        return value
    if callable(value):
        if problem := problem_with_call(value, "waits", "attempt"):
            raise place.error(f"{where}: wait: {problem}")
        return value
    return place.check(checked_duration, value, f"{where}: wait")
