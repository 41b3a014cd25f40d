"""From a class body and its bases to the steps and conditions of the class."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from geneva_drive.definition.blueprint import Blueprint, Place
from geneva_drive.definition.collection import StepCollection
from geneva_drive.definition.conditions import Condition
from geneva_drive.definition.declarations import Declaration, declarations_in, without_declarations
from geneva_drive.definition.defining import define_condition, define_step, with_real_function
from geneva_drive.definition.steps import DeclaredStep, StepDefinition

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
    """

    steps: StepCollection
    cancel_conditions: tuple[Condition, ...]
    body: dict[str, Any]
    own: tuple[Declaration, ...]


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
    body = without_declarations(blueprint, own, inherited)
    finished = replace(blueprint, body=body)

    order: list[StepDefinition] = []
    conditions: dict[str, Condition] = {}
    for declaration in (*inherited, *own):
        declared, place = declaration.declared, declaration.place(blueprint.path)
        _check_name(declaration.name, reserved, place)
        if isinstance(declared, DeclaredStep):
            if declaration.name in conditions:
                raise place.error("the name is that of an inherited @cancel_if. Choose another name.")
            definition = define_step(declaration, declared, finished, place)
            _put_in_order(order, definition, place, declaration.follows)
        else:
            if any(definition.name == declaration.name for definition in order):
                raise place.error("the name is that of an inherited step. Choose another name.")
            conditions[declaration.name] = define_condition(declaration, declared, finished, place)
    _check_shortened_series(blueprint, own, inherited, order)
    _check_gravestones(blueprint, own, order)
    definitions = [with_real_function(definition, finished) for definition in order]
    _check_former_names(blueprint, definitions)
    return Collected(StepCollection(definitions), tuple(conditions.values()), body, own)


def _check_name(name: str, reserved: Collection[str], place: Place) -> None:
    if name in reserved or (name.startswith("__") and name.endswith("__")):
        raise place.error(f"the name would hide Workflow.{name}. Choose another name.")
    if len(name) > LONGEST_STEP_NAME:
        raise place.error(f"the name is longer than {LONGEST_STEP_NAME} characters. Shorten it.")


def _put_in_order(
    order: list[StepDefinition], definition: StepDefinition, place: Place, follows: str | None
) -> None:
    """Put a step where it belongs.

    That is next to the neighbour that it names, else where its namesake was, else after the member of its
    series before it, else at the end.
    """
    names = [each.name for each in order]
    namesake = names.index(definition.name) if definition.name in names else None
    option, neighbour = "after", definition.after
    if definition.before is not None:
        option, neighbour = "before", definition.before
    if neighbour is not None and neighbour not in names:
        declared = ", ".join(names) or "none"
        raise place.error(f"{option}={neighbour!r} names no step declared before it. There are: {declared}.")
    if neighbour == definition.name:
        raise place.error(f"{option}={neighbour!r} names the step itself. Name another one.")
    if follows is not None and (neighbour is not None or namesake is None):
        option, neighbour = "after", follows
    if namesake is not None and neighbour is None:
        order[namesake] = definition
        return
    if namesake is not None:
        del order[namesake], names[namesake]
    if neighbour is None:
        order.append(definition)
    else:
        order.insert(names.index(neighbour) + (option == "after"), definition)


def _check_shortened_series(
    blueprint: Blueprint,
    own: Sequence[Declaration],
    inherited: Sequence[Declaration],
    order: Sequence[StepDefinition],
) -> None:
    """Refuse to leave the tail of an inherited series behind, where rows may wait for either code."""
    series = {each.series for each in own if each.series is not None}
    members = {each.name for each in own}
    runnable = {definition.name for definition in order if definition.is_runnable}
    for declaration in inherited:
        if declaration.series in series and declaration.name in runnable - members:
            raise declaration.place(blueprint.path).error(
                f"series {declaration.series!r} is declared again with fewer waits, which leaves this step "
                f"behind. Take it out: {declaration.name} = removed_step()."
            )


def _check_gravestones(
    blueprint: Blueprint, own: Sequence[Declaration], order: Sequence[StepDefinition]
) -> None:
    """Refuse a plain method that stands where an inherited gravestone is: nothing would call it."""
    declared = {each.name for each in own}
    for definition in order:
        if definition.is_removed and definition.name in blueprint.body.keys() - declared:
            raise Place(blueprint.path, definition.name, definition.location).error(
                "it is a removed step, and this class defines a plain method of that name, which would never "
                "run. Put @step above it to bring the step back, or choose another name."
            )


def _check_former_names(blueprint: Blueprint, definitions: Sequence[StepDefinition]) -> None:
    names = {definition.name for definition in definitions}
    taken: dict[str, str] = {}
    for definition in definitions:
        place = Place(blueprint.path, definition.name, definition.location)
        for old in definition.formerly:
            if old in names:
                raise place.error(f"formerly={old!r} is the name of a declared step. Take one of them out.")
            if old in taken:
                raise place.error(
                    f"formerly={old!r} is said by step {taken[old]!r} too. Take one of them out."
                )
            taken[old] = definition.name
