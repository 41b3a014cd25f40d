"""The conditions ``skip_if``, ``run_if`` and ``cancel_if``, which are evaluated before a step.

They run while the workflow's row is locked, and must only read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from geneva_drive.definition.validation import (
    MISSING,
    Blueprint,
    Declared,
    Place,
    caller_location,
    problem_with_call,
    problem_with_function,
    truth,
)

Test = Callable[[Any], object]
F = TypeVar("F", bound=Test)


@dataclass(frozen=True, slots=True)
class Condition:
    """A checked condition: a callable of the workflow, the name of a method, or a constant.

    ``negated`` is for ``run_if``, ``name`` for records.
    """

    test: Test | str | bool
    negated: bool = False
    name: str = ""

    def evaluate(self, workflow: Any) -> bool:
        """Return whether the condition holds. Raises what the callable raises."""
        if isinstance(self.test, bool):
            return self.test is not self.negated
        holds = getattr(workflow, self.test)() if isinstance(self.test, str) else self.test(workflow)
        return truth(holds, f"condition {self.name!r} of {type(workflow).__name__}") is not self.negated


@dataclass(eq=False, repr=False)
class DeclaredCondition(Declared):
    """What `cancel_if` leaves in a class body."""

    options: dict[str, Any]

    kind = "cancel_if"

    @property
    def plain(self) -> Any:
        return self.function if callable(self.function) else MISSING


@overload
def cancel_if(condition: F, /) -> F: ...
@overload
def cancel_if(condition: str, /) -> Any: ...
def cancel_if(*arguments: Any, **options: Any) -> Any:
    """Cancel the workflow if this holds. Evaluated before every step, before anything else.

    Decorates a method, or takes a callable of the workflow or a method's name::

        @cancel_if
        def order_withdrawn(self):
            return self.hero.withdrawn

        customer_gone = cancel_if(lambda workflow: workflow.hero.customer is None)
    """
    test = arguments[0] if len(arguments) == 1 else MISSING
    return DeclaredCondition(test, caller_location(1), options)


def checked_condition(value: Any, option: str, blueprint: Blueprint, place: Place) -> Condition:
    """Return the condition that `value` stands for: a callable, a method's name or a boolean.

    Raises
    ------
    StepConfigurationError
        It is none of these, the method does not exist, or it needs more arguments than the workflow.
    """
    if isinstance(value, bool):
        return Condition(value, name=str(value))
    if isinstance(value, str):
        method = blueprint.find(value)
        if isinstance(method, DeclaredCondition):
            method = method.function
        if isinstance(method, Declared):
            raise place.error(f"{option}={value!r} is a step. Name a method that only looks.")
        if method is MISSING:
            raise place.error(
                f"{option}={value!r} names no method of the class. Define it, or correct the name."
            )
        problem = problem_with_function(method, "self") or problem_with_call(method, "conditions", "self")
        if problem:
            raise place.error(f"{option}={value!r}: {problem}")
        return Condition(value, name=value)
    if isinstance(value, Declared):
        raise place.error(f"{option}={value!r} is not a condition. Give the method's name as a text.")
    if isinstance(value, type) or not callable(value):
        raise place.error(
            f"{option}={value!r} is not a condition. Give a callable of the workflow, a method's name, "
            "True or False."
        )
    if problem := problem_with_call(value, "conditions", "workflow"):
        raise place.error(f"{option}={value!r}: {problem}")
    return Condition(value, name=getattr(value, "__name__", type(value).__name__))
