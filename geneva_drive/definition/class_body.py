"""The declarations in a class body, one for each name, and the body without them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from geneva_drive.definition.conditions import DeclaredCondition
from geneva_drive.definition.policies import DeclaredHandler, DeclaredPolicies
from geneva_drive.definition.steps import DeclaredStep
from geneva_drive.definition.validation import MISSING, Blueprint, Declared, Place, checked_duration


@dataclass(frozen=True, slots=True)
class Declaration:
    """One name that a class body declares: a step, a condition, a handler of exceptions, or policies.

    Attributes
    ----------
    series
        The attribute that declared it together with others, or None.
    wait
        For a member of a series, its own wait.
    follows
        For a member of a series, the member before it.
    """

    name: str
    declared: Declared | DeclaredPolicies
    series: str | None = None
    wait: timedelta | None = None
    follows: str | None = None

    def place(self, owner: str) -> Place:
        """Return where it is, in a class that declares or inherits it."""
        return Place(owner, self.name, getattr(self.declared, "location", None), self.kind)

    @property
    def kind_written(self) -> str:
        """How a reader would call it: decorators with their sign, but a step by its name."""
        return self.kind if isinstance(self.declared, DeclaredStep) else f"@{self.kind}"

    @property
    def kind(self) -> str:
        """What to call it in a complaint."""
        return self.declared.kind if isinstance(self.declared, Declared) else "attribute"


def declarations_in(owner: str, body: Mapping[str, Any]) -> Iterator[Declaration]:
    """Return what a class body declares, in its order. `owner` is whom an error is about."""
    for name, value in body.items():
        if isinstance(value, DeclaredStep) and value.waits is not MISSING:
            yield from _members(Place(owner, name, value.location, "series"), name, value)
        elif isinstance(value, Declared):
            yield Declaration(name, value)
        elif name == "exception_policies":
            yield Declaration(name, DeclaredPolicies(value))


def _members(place: Place, name: str, declared: DeclaredStep) -> Iterator[Declaration]:
    if declared.arguments:
        surplus = declared.arguments[0]
        raise place.error(f"{surplus!r} is one argument too many. Give a function and waits=[…].")
    for option in ("wait", "formerly"):
        if option in declared.options:
            given = declared.options[option]
            raise place.error(f"{option}={given!r} cannot hold for each step of a series. Leave it out.")
    if isinstance(declared.waits, str | Mapping) or not isinstance(declared.waits, Iterable):
        raise place.error(f"waits={declared.waits!r} is not a list. Give a list of timedeltas.")
    # Kept, for it may be an iterator, and every subclass reads it again.
    declared.waits = tuple(declared.waits)
    if not declared.waits:
        raise place.error("waits is empty, which makes no step. Give at least one timedelta.")
    follows = None
    for number, wait in enumerate(declared.waits, start=1):
        try:
            checked_duration(wait, f"waits[{number - 1}]")
        except ValueError as error:
            raise place.error(str(error)) from None
        member = f"{name}_{number}"
        yield Declaration(member, declared, series=name, wait=wait, follows=follows)
        follows = member


def without_declarations(
    blueprint: Blueprint, own: Sequence[Declaration], inherited: Sequence[Declaration]
) -> dict[str, Any]:
    """Return the class body with plain functions where declarations were.

    Parameters
    ----------
    own
        The declarations of the body.
    inherited
        Those of the ancestors, the nearest one last.

    Raises
    ------
    StepConfigurationError
        A declaration is hidden inside another decorator, or a member of a series takes a name that is taken.
    """
    body: dict[str, Any] = {}
    for name, value in blueprint.body.items():
        if isinstance(value, DeclaredCondition):
            if callable(value.function):
                body[name] = value.function
        elif isinstance(value, DeclaredHandler):
            body[name] = value.function
        elif isinstance(value, DeclaredStep):
            if not value.removed and value.waits is MISSING:
                body[name] = value.function
        else:
            _check_for_hidden_declaration(name, value, blueprint)
            body[name] = value
    for declaration in own:
        if declaration.series is not None and isinstance(declaration.declared, DeclaredStep):
            if declaration.name in blueprint.body:
                raise declaration.place(blueprint.path).error(
                    f"series {declaration.series!r} makes it, and the class body declares it too. Rename one."
                )
            body[declaration.name] = declaration.declared.function
    for declaration in reversed(inherited):
        # A plain mixin had no class to put the functions of its series on.
        if (
            declaration.series is not None
            and isinstance(declaration.declared, DeclaredStep)
            and declaration.name not in body
            and blueprint.find(declaration.name) is MISSING
        ):
            body[declaration.name] = declaration.declared.function
    return body


def _check_for_hidden_declaration(name: str, value: Any, blueprint: Blueprint) -> None:
    """Refuse ``@other @step def …``: only the outermost object is seen, so the step would be lost."""
    inner = value
    for _ in range(100):  # Whatever pretends to wrap itself ends here.
        inner = _inside(inner)
        if isinstance(inner, Declared):
            place = Place(blueprint.path, name, inner.location)
            raise place.error(
                "another decorator stands above @step, @cancel_if or @on_exception, which hides it. "
                "Put it below."
            )
        if inner is None:
            return


def _inside(value: Any) -> Any:
    match value:
        case type():
            return None
        case property():
            return value.fget
        case functools.partial() | functools.partialmethod() | functools.cached_property():
            return value.func
        case _:
            return getattr(value, "__wrapped__", None)


class ClassBody(dict[str, Any]):
    """A class body that notices when a declaration takes a name that is taken, or loses its own.

    In a plain dict the first of two steps of one name would be gone without a trace.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        earlier = self.get(name)
        taken = isinstance(earlier, Declared) or (isinstance(value, Declared) and name in self)
        # `check = step(check)` is the decorator written out.
        if taken and not (isinstance(value, DeclaredStep) and value.function is earlier):
            self._refuse(name, earlier, value)
        super().__setitem__(name, value)

    def _refuse(self, name: str, earlier: Any, value: Any) -> None:
        owner = f"{self.get('__module__', '?')}.{self.get('__qualname__', '?')}"
        declared = value if isinstance(value, Declared) else earlier
        place = Place(owner, name, declared.location)
        first = f" (first at {earlier.location})" if hasattr(earlier, "location") else ""
        raise place.error(f"the name is taken twice in this class body{first}. Rename one of the two.")
