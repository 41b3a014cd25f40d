"""From a class body and its bases to the steps and conditions of the class."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from geneva_drive.definition.blueprint import MISSING, Blueprint, Place
from geneva_drive.definition.collection import StepCollection
from geneva_drive.definition.conditions import Condition, DeclaredCondition, checked_condition
from geneva_drive.definition.durations import checked_duration
from geneva_drive.definition.functions import is_coroutine_function, problem_with_function
from geneva_drive.definition.step_options import checked_step_options
from geneva_drive.definition.steps import DeclaredStep, StepDefinition, _Pending

__all__ = ["Collected", "Declaration", "collect"]

LONGEST_STEP_NAME = 150
"""Characters."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """One name that a class body, or a line of it, declares."""

    name: str
    declared: DeclaredStep | DeclaredCondition
    wait: timedelta | None = None
    """For a member of a series, its own wait."""
    follows: str | None = None
    """For a member of a series, the member before it."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a class declares and inherits.

    Attributes
    ----------
    body
        The class body with plain functions where declarations stood.
    own
        The declarations of this body alone, for the subclasses to come.
    """

    steps: StepCollection
    cancel_conditions: tuple[Condition, ...]
    body: dict[str, Any]
    own: tuple[Declaration, ...]


def collect(
    blueprint: Blueprint,
    reserved: Collection[str],
    inherited: Iterable[tuple[type, tuple[Declaration, ...]]] = (),
) -> Collected:
    """Return what a class that is about to be made declares and inherits.

    Parameters
    ----------
    blueprint
        The class.
    reserved
        Names that no step may have: the attributes of the base class.
    inherited
        The ancestors that are workflow classes, with the declarations of their own bodies. The other
        ancestors are plain mixins, whose bodies are read here.

    Raises
    ------
    StepConfigurationError
        Something in it is wrong.
    """
    own = tuple(_declarations(blueprint.path, blueprint.body))
    known = dict(inherited)
    layers = [
        known[ancestor] if ancestor in known else tuple(_declarations(blueprint.path, vars(ancestor)))
        for ancestor in reversed(blueprint.ancestors)
    ]
    body = _plain_body(blueprint, own, layers)
    finished = replace(blueprint, body=body)

    order: list[StepDefinition] = []
    conditions: dict[str, Condition] = {}
    for declaration in (each for layer in [*layers, own] for each in layer):
        name, declared = declaration.name, declaration.declared
        kind = "step" if isinstance(declared, DeclaredStep) else "cancel_if"
        place = Place(blueprint.path, name, declared.location, kind)
        _check_name(name, reserved, place)
        if isinstance(declared, DeclaredStep):
            if name in conditions:
                raise place.error("the name is taken by an inherited cancel_if. Choose another name.")
            _put_in_order(order, _define(declaration, declared, finished, place), place)
        else:
            if any(definition.name == name for definition in order):
                raise place.error("the name is taken by an inherited step. Choose another name.")
            conditions[name] = _condition(name, declared, finished, place)
    _check_overrides(blueprint, own, order, conditions)
    definitions = [_with_code(definition, finished) for definition in order]
    _check_former_names(definitions, blueprint)
    return Collected(StepCollection(definitions), tuple(conditions.values()), body, own)


def _declarations(owner: str, body: Any) -> Iterable[Declaration]:
    for name, value in list(body.items()):
        if isinstance(value, DeclaredStep) and value.waits is not MISSING:
            yield from _members(Place(owner, name, value.location, "series"), name, value)
        elif isinstance(value, DeclaredStep | DeclaredCondition):
            yield Declaration(name, value)


def _members(place: Place, name: str, declared: DeclaredStep) -> Iterable[Declaration]:
    if declared.arguments:
        raise place.error(
            f"{declared.arguments[0]!r} is one argument too many. Give a function and waits=[…]."
        )
    for option in ("wait", "formerly"):
        if option in declared.options:
            raise place.error(
                f"{option}={declared.options[option]!r} cannot hold for all steps of a series. Leave it out."
            )
    if isinstance(declared.waits, str | timedelta):
        raise place.error(f"waits={declared.waits!r} is not a list. Give a list of timedeltas.")
    try:
        # Kept, for waits may be an iterator and is read again for each subclass.
        declared.waits = tuple(declared.waits)
        waits = [checked_duration(wait, f"waits[{index}]") for index, wait in enumerate(declared.waits)]
    except TypeError:
        raise place.error(f"waits={declared.waits!r} is not a list. Give a list of timedeltas.") from None
    except ValueError as error:
        raise place.error(str(error)) from None
    if not waits:
        raise place.error("waits is empty, which makes no step. Give at least one timedelta.")
    follows = None
    for number, wait in enumerate(waits, start=1):
        yield Declaration(f"{name}_{number}", declared, wait, follows)
        follows = f"{name}_{number}"


def _plain_body(
    blueprint: Blueprint, own: tuple[Declaration, ...], layers: list[tuple[Declaration, ...]]
) -> dict[str, Any]:
    """Return the class body with functions in place of declarations."""
    body: dict[str, Any] = {}
    members = {each.name for each in own if each.follows or each.wait is not None}
    for name, value in blueprint.body.items():
        if name in members:
            raise blueprint.place.error(
                f"{name!r} is declared both by itself and as part of a series. Rename one."
            )
        if isinstance(value, DeclaredCondition):
            if callable(value.test):
                body[name] = value.test
        elif not isinstance(value, DeclaredStep):
            _check_buried_decorator(name, value, blueprint)
            body[name] = value
        elif not value.removed and value.waits is MISSING:
            body[name] = value.function
    for declaration in own:
        if declaration.name in members and isinstance(declaration.declared, DeclaredStep):
            body[declaration.name] = declaration.declared.function
    for declaration in (each for layer in reversed(layers) for each in layer if each.wait is not None):
        # A series in a plain mixin has had no class to put its members' functions on.
        if declaration.name not in body and blueprint.find(declaration.name) is MISSING:
            assert isinstance(declaration.declared, DeclaredStep)
            body[declaration.name] = declaration.declared.function
    return body


def _check_buried_decorator(name: str, value: Any, blueprint: Blueprint) -> None:
    """Refuse ``@other @step def …``: the step would be lost, for only the outermost object is seen."""
    inner = value
    for _ in range(50):
        inner = next(
            (
                vars(type(inner)).get("__get__") and getattr(inner, attribute)
                for attribute in ("__wrapped__", "fget", "func")
                if not isinstance(inner, type) and hasattr(inner, attribute)
            ),
            None,
        )
        if isinstance(inner, DeclaredStep | DeclaredCondition):
            place = Place(blueprint.path, name, inner.location)
            raise place.error("another decorator stands above the one that declares it. Put that one below.")
        if inner is None:
            return


def _check_name(name: str, reserved: Collection[str], place: Place) -> None:
    if name in reserved or (name.startswith("__") and name.endswith("__")):
        raise place.error(f"the name would hide Workflow.{name}. Choose another name.")
    if len(name) > LONGEST_STEP_NAME:
        raise place.error(f"the name is longer than {LONGEST_STEP_NAME} characters. Shorten it.")


def _define(
    declaration: Declaration, declared: DeclaredStep, blueprint: Blueprint, place: Place
) -> StepDefinition:
    if declared.removed:
        if declared.arguments or declared.options:
            given = [repr(each) for each in declared.arguments]
            given += [f"{option}={value!r}" for option, value in declared.options.items()]
            raise place.error(
                f"removed_step({', '.join(given)}): a gravestone takes its name from the attribute and nothing "
                "else. Leave the parentheses empty."
            )
        return StepDefinition(declaration.name, removed=True, location=declared.location)
    if declared.arguments:
        raise place.error(
            f"step({declared.arguments[0]!r}): a step takes its name from the method. Give options by keyword."
        )
    if isinstance(declared, _Pending):
        raise place.error("step(…) decorates nothing. Put it above a method, as @step(…).")
    if problem := problem_with_function(declared.function, "self"):
        raise place.error(problem)
    fields = checked_step_options(declared.options, blueprint, place)
    if declaration.wait is not None:
        fields["wait"] = declaration.wait
        fields["options"] = {**fields["options"], "wait": declaration.wait}
    if declaration.follows is not None:
        fields["before"], fields["after"] = None, declaration.follows
    return StepDefinition(
        declaration.name,
        function=declaration.name,
        resumable=declared.resumable,
        location=declared.location,
        **fields,
    )


def _put_in_order(order: list[StepDefinition], definition: StepDefinition, place: Place) -> None:
    """Put the step where it belongs: next to a neighbour, else where its namesake was, else at the end."""
    names = [each.name for each in order]
    namesake = names.index(definition.name) if definition.name in names else None
    option = "before" if definition.before is not None else "after"
    neighbour = definition.before if definition.before is not None else definition.after
    if neighbour is None:
        if namesake is None:
            order.append(definition)
        else:
            order[namesake] = definition
        return
    if neighbour == definition.name:
        raise place.error(f"{option}={neighbour!r} names the step itself. Name another one.")
    if neighbour not in names:
        declared = ", ".join(name for name in names if name != definition.name) or "none"
        raise place.error(f"{option}={neighbour!r} names no step declared so far. Declared are: {declared}.")
    if namesake is not None:
        del order[namesake], names[namesake]
    order.insert(names.index(neighbour) + (option == "after"), definition)


def _condition(name: str, declared: DeclaredCondition, blueprint: Blueprint, place: Place) -> Condition:
    test = declared.test
    if isinstance(test, bool) or test is MISSING:
        raise place.error(f"cancel_if({test!r}) is not a condition. Put @cancel_if above a method.")
    if isinstance(test, str):
        return checked_condition(test, "cancel_if", blueprint, place)
    # By its name, so that a subclass may redefine the plain method.
    return checked_condition(name, "cancel_if", blueprint, place)


def _check_overrides(
    blueprint: Blueprint,
    own: tuple[Declaration, ...],
    order: list[StepDefinition],
    conditions: dict[str, Condition],
) -> None:
    """Refuse a plain value of this body that stands where a gravestone is."""
    declared = {each.name for each in own}
    for definition in order:
        if definition.is_removed and definition.name in blueprint.body and definition.name not in declared:
            place = Place(blueprint.path, definition.name, definition.location)
            raise place.error(
                "it is a gravestone here, and the class redefines the plain method. Declare it again with "
                "@step to bring it back, or choose another name."
            )


def _with_code(definition: StepDefinition, blueprint: Blueprint) -> StepDefinition:
    """Check the function that will really be called; a subclass or mixin may have redefined it."""
    if definition.is_removed:
        return definition
    function = blueprint.find(definition.name)
    if isinstance(function, DeclaredStep):
        function = function.function
    if problem := problem_with_function(function, "self"):
        place = Place(blueprint.path, definition.name, definition.location)
        raise place.error(f"{problem} To take the step out, say {definition.name} = removed_step().")
    return replace(definition, is_async=is_coroutine_function(function))


def _check_former_names(definitions: list[StepDefinition], blueprint: Blueprint) -> None:
    names = {definition.name for definition in definitions}
    taken: dict[str, str] = {}
    for definition in definitions:
        place = Place(blueprint.path, definition.name, definition.location)
        for old in definition.formerly:
            if old in names:
                raise place.error(f"formerly={old!r} is the name of a declared step. Take either away.")
            if old in taken:
                raise place.error(
                    f"formerly={old!r} is claimed by step {taken[old]!r} too. Keep one of them."
                )
            taken[old] = definition.name
