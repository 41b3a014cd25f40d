"""From a class body and its bases to the steps and conditions of the class."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from geneva_drive.definition.blueprint import Blueprint, Place
from geneva_drive.definition.collection import StepCollection
from geneva_drive.definition.conditions import Condition, DeclaredCondition
from geneva_drive.definition.declarations import Declaration, declarations_in, without_declarations
from geneva_drive.definition.declared_step import DeclaredStep
from geneva_drive.definition.defining import define_condition, define_step
from geneva_drive.definition.order import put_in_order
from geneva_drive.definition.policies import DeclaredHandler, DeclaredPolicies, Policy
from geneva_drive.definition.policy_checks import checked_class_policies, checked_handler
from geneva_drive.definition.step_definition import StepDefinition

__all__ = ["LONGEST_STEP_NAME", "Collected", "collect"]

LONGEST_STEP_NAME: Final = 150
"""Characters. What the column holds."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a class declares and inherits.

    Attributes
    ----------
    body
        The class body with plain functions where declarations were.
    own
        The declarations of this body alone, from which subclasses are made.
    policies
        What the class says about exceptions, in the order of declaration, that of base classes first.
    """

    steps: StepCollection
    cancel_conditions: tuple[Condition, ...]
    body: dict[str, Any]
    own: tuple[Declaration, ...]
    policies: tuple[Policy, ...] = ()


def collect(
    blueprint: Blueprint, reserved: Collection[str], known: Mapping[type, Sequence[Declaration]]
) -> Collected:
    """Return what a class that is about to be made declares and inherits.

    Everything is placed anew, from the farthest ancestor to the class itself, so that one rule of order
    holds for a single class, a line of subclasses and mixins alike.

    Parameters
    ----------
    reserved
        Names that no step may have: the attributes of the base class.
    known
        The ancestors that are workflow classes, with the declarations of their bodies. The other ancestors
        are plain mixins, whose bodies are read here.

    Raises
    ------
    StepConfigurationError
        Something in it is wrong.
    """
    own = tuple(declarations_in(blueprint.path, blueprint.body))
    inherited: list[Declaration] = []
    for ancestor in reversed(blueprint.ancestors):
        inherited += known.get(ancestor) or declarations_in(blueprint.path, vars(ancestor))
    finished = replace(blueprint, body=without_declarations(blueprint, own, inherited))

    order: list[str] = []
    effective: dict[str, Declaration] = {}
    for declaration in (*inherited, *own):
        if isinstance(declaration.declared, DeclaredPolicies):
            continue  # Every class of the line may have its own, and they add up.
        place = declaration.place(blueprint.path)
        _check_name(declaration, effective.get(declaration.name), reserved, place)
        effective[declaration.name] = declaration
        if isinstance(declaration.declared, DeclaredStep):
            put_in_order(order, declaration, place)
    # Only what holds in the end is defined: what a subclass replaces may not fit the subclass any more.
    steps = [define_step(effective[name], finished) for name in order]
    conditions = [
        define_condition(each, finished)
        for each in effective.values()
        if isinstance(each.declared, DeclaredCondition)
    ]
    policies = _policies((*inherited, *own), effective, finished)

    _check_shortened_series(blueprint, own, inherited, steps)
    _check_gravestones(blueprint, own, steps)
    _check_former_names(blueprint, steps)
    asked = [(each.name, each.skip_if) for each in steps if each.skip_if is not None]
    asked += [(name, each) for name, each in conditions]
    for name, condition in asked:
        if isinstance(condition.test, str) and condition.test in order:
            # Looking would do the step's work, and that under the lock.
            raise (
                effective[name]
                .place(blueprint.path)
                .error(f"its condition {condition.test!r} is a step. Name a method that only looks.")
            )
    return Collected(
        StepCollection(steps), tuple(each for _, each in conditions), finished.body, own, policies
    )


def _policies(
    declarations: Sequence[Declaration], effective: Mapping[str, Declaration], blueprint: Blueprint
) -> tuple[Policy, ...]:
    policies: list[Policy] = []
    for declaration in declarations:
        declared = declaration.declared
        if isinstance(declared, DeclaredPolicies):
            policies += checked_class_policies(declared, blueprint, blueprint.path)
        elif isinstance(declared, DeclaredHandler) and effective[declaration.name] is declaration:
            policies.append(
                checked_handler(declaration.name, declared, blueprint, declaration.place(blueprint.path))
            )
    return tuple(policies)


def _check_name(
    declaration: Declaration, inherited: Declaration | None, reserved: Collection[str], place: Place
) -> None:
    name = declaration.name
    if name in reserved or (name.startswith("__") and name.endswith("__")):
        raise place.error(f"the name would hide Workflow.{name}. Choose another name.")
    if len(name) > LONGEST_STEP_NAME:
        raise place.error(f"the name is longer than {LONGEST_STEP_NAME} characters. Shorten it.")
    if inherited is not None and type(inherited.declared) is not type(declaration.declared):
        raise place.error(f"the name is that of an inherited {inherited.kind_written}. Choose another name.")


def _check_shortened_series(
    blueprint: Blueprint,
    own: Sequence[Declaration],
    inherited: Sequence[Declaration],
    steps: Sequence[StepDefinition],
) -> None:
    """Refuse to leave the tail of an inherited series behind, where rows may wait for either code."""
    series = {each.series for each in own if each.series is not None}
    members = {each.name for each in own}
    runnable = {definition.name for definition in steps if definition.is_runnable}
    for declaration in inherited:
        if declaration.series in series and declaration.name in runnable - members:
            raise declaration.place(blueprint.path).error(
                f"series {declaration.series!r} is declared again with fewer waits, which leaves this step "
                f"behind. Take it out: {declaration.name} = removed_step()."
            )


def _check_gravestones(
    blueprint: Blueprint, own: Sequence[Declaration], steps: Sequence[StepDefinition]
) -> None:
    """Refuse a plain method that stands where an inherited gravestone is: nothing would call it."""
    declared = {each.name for each in own}
    for definition in steps:
        if definition.is_removed and definition.name in blueprint.body.keys() - declared:
            raise Place(blueprint.path, definition.name, definition.location).error(
                "it is a removed step, and this class defines a plain method of that name, which would never "
                "run. Put @step above it to bring the step back, or choose another name."
            )


def _check_former_names(blueprint: Blueprint, steps: Sequence[StepDefinition]) -> None:
    names = {definition.name for definition in steps}
    taken: dict[str, str] = {}
    for definition in steps:
        place = Place(blueprint.path, definition.name, definition.location)
        for old in definition.formerly:
            if old in names:
                raise place.error(f"formerly={old!r} is the name of a declared step. Take one of them out.")
            if old in taken:
                raise place.error(
                    f"formerly={old!r} is said by step {taken[old]!r} too. Take one of them out."
                )
            taken[old] = definition.name
