"""From a declaration to the checked definition of one step or condition."""

from __future__ import annotations

from dataclasses import replace

from geneva_drive.definition.blueprint import MISSING, Blueprint, Place
from geneva_drive.definition.conditions import Condition, DeclaredCondition, checked_condition
from geneva_drive.definition.declarations import Declaration
from geneva_drive.definition.functions import is_coroutine_function, problem_with_function
from geneva_drive.definition.step_options import checked_step_options
from geneva_drive.definition.steps import DeclaredStep, StepDefinition

__all__ = ["define_condition", "define_step", "with_real_function"]


def define_step(
    declaration: Declaration, declared: DeclaredStep, blueprint: Blueprint, place: Place
) -> StepDefinition:
    """Return the step or gravestone that was declared.

    Raises
    ------
    StepConfigurationError
        It was declared in a way that cannot work.
    """
    if declared.removed:
        _check_gravestone(declared, place)
        return StepDefinition(declaration.name, removed=True, location=declared.location)
    if declared.arguments:
        surplus = declared.arguments[0]
        raise place.error(f"step({surplus!r}): a step takes its name from the method. Give keywords only.")
    if declared.function is MISSING:
        raise place.error("step(…) decorates nothing. Put it above a method, as @step(…).")
    if isinstance(declared.function, DeclaredStep | DeclaredCondition):
        raise place.error("its function is declared as a step or a condition already. Give a plain function.")
    if problem := problem_with_function(declared.function, "self"):
        raise place.error(problem)
    fields = checked_step_options(declared.options, blueprint, place)
    if declaration.wait is not None:
        fields["wait"] = declaration.wait
        fields["options"]["wait"] = declaration.wait
    return StepDefinition(
        declaration.name,
        function=declaration.name,
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


def define_condition(
    declaration: Declaration, declared: DeclaredCondition, blueprint: Blueprint, place: Place
) -> Condition:
    """Return the condition that was declared with ``cancel_if``.

    A method is kept by its name, so that a subclass may redefine it.
    """
    test = declared.test
    if declared.options or test is MISSING or isinstance(test, bool):
        raise place.error("cancel_if takes one callable of the workflow or method's name. Give that alone.")
    if isinstance(test, str) or not callable(test):
        return checked_condition(test, "cancel_if", blueprint, place)
    return checked_condition(declaration.name, "cancel_if", blueprint, place)


def with_real_function(definition: StepDefinition, blueprint: Blueprint) -> StepDefinition:
    """Look at what will be called: the class or a mixin may have redefined the plain method."""
    if definition.is_removed:
        return definition
    function = blueprint.find(definition.name)
    if isinstance(function, DeclaredStep):
        function = function.function
    if problem := problem_with_function(function, "self"):
        place = Place(blueprint.path, definition.name, definition.location)
        raise place.error(f"{problem} To take the step out, write {definition.name} = removed_step().")
    return replace(definition, is_async=is_coroutine_function(function))
