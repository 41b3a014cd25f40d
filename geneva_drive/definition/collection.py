"""The steps of a workflow class: `StepDefinition`, and `StepCollection`, which keeps them in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from geneva_drive.definition.conditions import Condition
from geneva_drive.definition.matchers import Matcher
from geneva_drive.definition.policies import Policy
from geneva_drive.definition.validation import Location
from geneva_drive.exceptions import StepNotDefinedError

OnCrash = Literal["reattempt", "pause", "cancel"]
OnTimeout = Literal["skip", "cancel", "pause"]


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """One step of a workflow class, checked.

    A field with the name of an option holds its checked value: see `options.STEP_OPTIONS`. None means that the
    option was not given.
    """

    name: str  # as rows store it
    # The attribute of the workflow to call. It is looked up on the instance, so that a subclass may
    # redefine the plain method and keep the options. None for a gravestone.
    function: str | None = None
    wait: timedelta = timedelta(0)
    skip_if: Condition | None = None  # also holds ``run_if``, negated
    wait_for: Matcher | None = field(default=None, hash=False)
    timeout: timedelta | None = None
    on_timeout: OnTimeout | None = None
    atomic: bool = False
    formerly: tuple[str, ...] = ()
    queue: str | None = None
    priority: int | None = None
    # The job options among the options, for `options.merge`.
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    on_crash: OnCrash | None = None
    policies: tuple[Policy, ...] = ()  # the checked ``on_exception``, in order
    removed: bool = False  # whether it is a gravestone
    is_async: bool = False
    resumable: bool = False  # whether the body receives an iteration with a cursor
    max_iterations: int | None = None
    max_runtime: timedelta | None = None
    checkpoint_every: int | timedelta = 1
    location: Location | None = None

    @property
    def is_runnable(self) -> bool:
        return not self.removed

    @property
    def conditional(self) -> bool:
        """Whether a condition or a signal decides if the step runs."""
        return self.skip_if is not None or self.wait_for is not None


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
    _previous: dict[str | None, StepDefinition | None]

    def __init__(self, definitions: Iterable[StepDefinition] = ()) -> None:
        ordered = tuple(definitions)
        for attribute, value in {
            "names": tuple(each.name for each in ordered),
            "runnable": tuple(each for each in ordered if each.is_runnable),
            "removed": tuple(each for each in ordered if each.removed),
            "_by_name": {each.name: each for each in ordered},
            "_current": {old: each.name for each in ordered for old in each.formerly},
            "_next": _runnable_before(reversed(ordered)),
            "_previous": _runnable_before(ordered),
        }.items():
            object.__setattr__(self, attribute, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("The steps of a class cannot be changed after the class is created.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("The steps of a class cannot be changed after the class is created.")

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
        shown = (f"{each.name} (removed)" if each.removed else each.name for each in self)
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
            raise StepNotDefinedError(f"There is no step {name!r}. Declared steps: {names}.")
        return definition.name


def _runnable_before(definitions: Iterable[StepDefinition]) -> dict[str | None, StepDefinition | None]:
    """Return, by name, the last runnable step before each, and under None the last of all."""
    found: dict[str | None, StepDefinition | None] = {}
    latest = None
    for definition in definitions:
        found[definition.name] = latest
        if definition.is_runnable:
            latest = definition
    found[None] = latest
    return found
