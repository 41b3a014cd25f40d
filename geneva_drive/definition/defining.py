"""From a declaration to the checked definition of one step or condition."""

from __future__ import annotations

from typing import Any

from asgiref.sync import iscoroutinefunction

from geneva_drive.definition.blueprint import MISSING, Blueprint, Place
from geneva_drive.definition.conditions import Condition, DeclaredCondition, checked_condition
from geneva_drive.definition.declarations import DECLARED, Declaration
from geneva_drive.definition.declared_step import DeclaredStep
from geneva_drive.definition.functions import problem_with_function
from geneva_drive.definition.step_definition import StepDefinition
from geneva_drive.definition.step_options import checked_step_options

__all__ = ["define_condition", "define_step"]


def define_step(declaration: Declaration, blueprint: Blueprint) -> StepDefinition:
    """Return the step or gravestone that was declared, as it is in the class.

    Raises
    ------
    StepConfigurationError
        It was declared in a way that cannot work.
    """
    declared, place = declaration.declared, declaration.place(blueprint.path)
    assert isinstance(declared, DeclaredStep)
    if declared.removed:
        _check_gravestone(declared, place)
        return StepDefinition(declaration.name, removed=True, location=declared.location)
    if declared.arguments:
        surplus = declared.arguments[0]
        raise place.error(f"step({surplus!r}): a step takes its name from the method. Give keywords only.")
    if declared.function is MISSING:
        raise place.error("step(…) decorates nothing. Put it above a method, as @step(…).")
    if isinstance(declared.function, DECLARED):
        raise place.error("its function is declared as a step or a condition already. Give a plain function.")
    taken = ("self", "iteration") if declared.resumable else ("self",)
    if problem := problem_with_function(declared.function, *taken):
        raise place.error(problem)
    fields = checked_step_options(declared.options, blueprint, place, resumable=declared.resumable)
    if declaration.wait is not None:
        fields["wait"] = fields["options"]["wait"] = declaration.wait
    is_async = iscoroutinefunction(_real_function(declaration.name, blueprint, place, taken))
    if is_async and declared.resumable:
        raise place.error(
            "it is async, and the checkpoints of a resumable step are calls of the database. Make it a plain "
            "method, and call what is async by asgiref's async_to_sync()."
        )
    return StepDefinition(
        declaration.name,
        function=declaration.name,
        is_async=is_async,
        resumable=declared.resumable,
        location=declared.location,
        **fields,
    )


def _check_gravestone(declared: DeclaredStep, place: Place) -> None:
    given = [repr(argument) for argument in declared.arguments]
    given += [f"{option}={value!r}" for option, value in declared.options.items()]
    if given:
        raise place.error(
            f"removed_step({', '.join(given)}): a gravestone takes its name from the attribute, and nothing "
            "else. Leave the parentheses empty."
        )


def _real_function(name: str, blueprint: Blueprint, place: Place, taken: tuple[str, ...]) -> Any:
    """Return what will be called, for the class or a mixin may have redefined the plain method."""
    function = blueprint.find(name)
    if isinstance(function, DeclaredStep):
        function = function.function
    if problem := problem_with_function(function, *taken):
        raise place.error(f"{problem} To take the step out, write {name} = removed_step().")
    return function


def define_condition(declaration: Declaration, blueprint: Blueprint) -> tuple[str, Condition]:
    """Return the name and the condition that was declared with ``cancel_if``.

    A method is kept by its name, so that a subclass may redefine it.
    """
    declared, place = declaration.declared, declaration.place(blueprint.path)
    assert isinstance(declared, DeclaredCondition)
    test = declared.test
    if declared.options or test is MISSING or isinstance(test, bool):
        raise place.error("cancel_if takes one callable of the workflow or method's name. Give that alone.")
    if callable(test):
        test = declaration.name
    return declaration.name, checked_condition(test, "cancel_if", blueprint, place)
