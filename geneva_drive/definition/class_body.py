"""From a class body to its declarations, and to the plain body that the class is made from."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from geneva_drive.definition.validation import MISSING, Blueprint, Declared, Place


@dataclass(frozen=True, slots=True)
class Declaration:
    """A name that a class body declares."""

    name: str
    declared: Any  # what the decorator left, or the value of ``exception_policies``
    series: str | None = None  # the attribute of the series that it belongs to, or None
    wait: timedelta | None = None  # for a member of a series, its wait
    follows: str | None = None  # for a member of a series, the member before it

    @property
    def is_policies(self) -> bool:
        return not isinstance(self.declared, Declared)

    def place(self, owner: str) -> Place:
        """Return where it is, in a class that declares or inherits it."""
        return Place(owner, self.name, self.declared.location, self.declared.kind)


def declarations_in(owner: str, body: Mapping[str, Any]) -> Iterator[Declaration]:
    """Return what a class body declares, in its order. `owner` is the class that errors name."""
    for name, value in body.items():
        if isinstance(value, Declared):
            waits = value.series_waits(Place(owner, name, value.location, "series"))
            if waits is None:
                yield Declaration(name, value)
                continue
            follows = None
            for number, wait in enumerate(waits, start=1):
                yield Declaration(f"{name}_{number}", value, series=name, wait=wait, follows=follows)
                follows = f"{name}_{number}"
        elif name == "exception_policies":
            yield Declaration(name, value)


def without_declarations(
    blueprint: Blueprint, own: Sequence[Declaration], inherited: Sequence[Declaration]
) -> dict[str, Any]:
    """Return the class body with plain functions in place of declarations.

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
        if not isinstance(value, Declared):
            _check_for_hidden_declaration(name, value, blueprint)
            body[name] = value
        elif (plain := value.plain) is not MISSING:
            body[name] = plain
    for member in own:
        if member.series is not None:
            if member.name in blueprint.body:
                raise member.place(blueprint.path).error(
                    f"series {member.series!r} makes it, and the class body declares it too. Rename one."
                )
            body[member.name] = member.declared.function
    for member in reversed(inherited):
        # A plain mixin has no attributes for the members of its series.
        if member.series is not None and member.name not in body and blueprint.find(member.name) is MISSING:
            body[member.name] = member.declared.function
    return body


def _check_for_hidden_declaration(name: str, value: Any, blueprint: Blueprint) -> None:
    """Refuse ``@other @step def …``: only the outermost object is seen, so the step would be lost."""
    inner = value
    for _ in range(100):  # An object that pretends to wrap itself must not loop forever.
        inner = _inside(inner)
        if isinstance(inner, Declared):
            raise Place(blueprint.path, name, inner.location).error(
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
    """A class body that refuses a second value for the name of a declaration.

    In a plain dict the second of two steps of one name would silently replace the first.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        earlier: Any = self.get(name)
        taken = isinstance(earlier, Declared) or (isinstance(value, Declared) and name in self)
        # `check = step(check)` is the decorator written out.
        written_out = isinstance(value, Declared) and value.kind == "step" and value.function is earlier
        if taken and not written_out:
            owner = f"{self.get('__module__', '?')}.{self.get('__qualname__', '?')}"
            declared: Any = value if isinstance(value, Declared) else earlier
            first = f" (first at {earlier.location})" if hasattr(earlier, "location") else ""
            raise Place(owner, name, declared.location).error(
                f"the name is taken twice in this class body{first}. Rename one of the two."
            )
        super().__setitem__(name, value)
