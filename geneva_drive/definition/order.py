"""Where in the order of a class a step belongs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geneva_drive.definition.blueprint import Place
from geneva_drive.definition.declarations import Declaration
from geneva_drive.definition.declared_step import DeclaredStep

__all__ = ["put_in_order"]


def put_in_order(order: list[str], declaration: Declaration, place: Place) -> None:
    """Put a step's name where it belongs.

    That is next to the neighbour that it names, else where the name is already, else after the member of
    its series before it, else at the end.

    Raises
    ------
    StepConfigurationError
        It names two neighbours, itself, or a step that is not in `order` yet.
    """
    name = declaration.name
    assert isinstance(declaration.declared, DeclaredStep)
    neighbour = _neighbour(declaration.declared.options, place)
    if neighbour is not None:
        option, other = neighbour
        if other not in order:
            declared = ", ".join(order) or "none"
            raise place.error(
                f"{option}={other!r} names no step that stands further up in the class, or in a base class. There "
                f"are: {declared}. Declare {other!r} first, or correct the name."
            )
        if other == name:
            raise place.error(f"{option}={other!r} names the step itself. Name another one.")
    elif name in order:
        return
    if declaration.follows is not None:
        neighbour = "after", declaration.follows
    if name in order:
        order.remove(name)
    if neighbour is None:
        order.append(name)
    else:
        option, other = neighbour
        order.insert(order.index(other) + (option == "after"), name)


def _neighbour(options: Mapping[str, Any], place: Place) -> tuple[str, str] | None:
    given = [(option, options[option]) for option in ("before", "after") if options.get(option) is not None]
    if len(given) == 2:
        raise place.error(
            f"before={options['before']!r} and after={options['after']!r} exclude each other. Keep one."
        )
    for option, other in given:
        if not isinstance(other, str):
            raise place.error(f"{option}={other!r} is not a step's name. Give the name as a text.")
    return given[0] if given else None
