"""The steps of a workflow class, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from geneva_drive.definition.step_definition import StepDefinition
from geneva_drive.exceptions import StepNotDefinedError

__all__ = ["StepCollection"]


class StepCollection:
    """The steps of a class in order, gravestones included. Cannot be changed.

    Attributes
    ----------
    names
        Every name, in order.
    runnable
        The steps that can run, in order.
    removed
        The gravestones, in order.
    """

    __slots__ = ("_by_name", "_current", "_next", "_previous", "names", "removed", "runnable")

    names: tuple[str, ...]
    runnable: tuple[StepDefinition, ...]
    removed: tuple[StepDefinition, ...]
    _by_name: dict[str, StepDefinition]
    _current: dict[str, str]
    _next: dict[str | None, StepDefinition | None]
    _previous: dict[str, StepDefinition | None]

    def __init__(self, definitions: Iterable[StepDefinition] = ()) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        ordered = tuple(definitions)
        put("names", tuple(definition.name for definition in ordered))
        put("runnable", tuple(definition for definition in ordered if definition.is_runnable))
        put("removed", tuple(definition for definition in ordered if definition.is_removed))
        put("_by_name", {definition.name: definition for definition in ordered})
        put("_current", {old: definition.name for definition in ordered for old in definition.formerly})

        following: StepDefinition | None = None
        after: dict[str | None, StepDefinition | None] = {}
        for definition in reversed(ordered):
            after[definition.name] = following
            following = definition if definition.is_runnable else following
        after[None] = following
        put("_next", after)

        preceding: StepDefinition | None = None
        before: dict[str, StepDefinition | None] = {}
        for definition in ordered:
            before[definition.name] = preceding
            preceding = definition if definition.is_runnable else preceding
        put("_previous", before)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("The steps of a class cannot be changed after it is made.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("The steps of a class cannot be changed after it is made.")

    def __iter__(self) -> Iterator[StepDefinition]:
        return iter(self._by_name.values())

    def __reversed__(self) -> Iterator[StepDefinition]:
        return reversed(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        """Whether a step or a gravestone has this name now."""
        return isinstance(name, str) and name in self._by_name

    def __getitem__(self, name: str) -> StepDefinition:
        """Return the step or gravestone of this name. Raises KeyError."""
        return self._by_name[name]

    def __repr__(self) -> str:
        shown = (f"{each.name} (removed)" if each.is_removed else each.name for each in self)
        return f"<StepCollection: {', '.join(shown)}>"

    def get(self, name: str, default: Any = None) -> StepDefinition | Any:
        """Return the step or gravestone of this name, or `default`."""
        return self._by_name.get(name, default)

    def resolve(self, name: str | None) -> StepDefinition | None:
        """Return the step or gravestone that has this name or had it formerly, or None."""
        if name is None:
            return None
        return self._by_name.get(self._current.get(name, name))

    def next_after(self, name: str | None) -> StepDefinition | None:
        """Return the first runnable step after this one, the very first for None, None after the last.

        Raises
        ------
        StepNotDefinedError
            No step or gravestone has the name or had it formerly.
        """
        return self._next[None if name is None else self._known(name)]

    def previous_before(self, name: str) -> StepDefinition | None:
        """Return the last runnable step before this one, or None before the first.

        Raises
        ------
        StepNotDefinedError
            No step or gravestone has the name or had it formerly.
        """
        return self._previous[self._known(name)]

    def _known(self, name: str) -> str:
        definition = self.resolve(name)
        if definition is None:
            names = ", ".join(self.names) or "none"
            raise StepNotDefinedError(f"No step is called {name!r}. Declared are: {names}.")
        return definition.name
