"""What is known of one step once its class is made."""

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

    Attributes
    ----------
    name
        What rows remember.
    function
        The attribute of the workflow that is called. It is looked up on the instance, so that a subclass
        may redefine the plain method and keep the rest. None for a gravestone.
    wait
        The time from scheduling to due, from zero.
    skip_if
        The step is passed over when this holds. ``run_if`` is kept here, negated. None: never.
    wait_for
        What says which signals the step needs one of. None: it needs none.
    timeout
        How long it may stand waiting for its signal. None: as long as it takes.
    on_timeout
        What follows then. None: what the policies say of a ``SignalWaitTimeout``, else a pause.
    atomic
        Whether body and completion share one transaction.
    before, after
        The step that this one was placed next to, as it was written.
    formerly
        Older names of this step, which rows may still have.
    queue, priority
        None when the step leaves them to the workflow and the settings.
    options
        The job options that the step itself gives, for `options.merge`: queue, priority, wait.
    on_crash
        What recovery does with it. None: what the setting says.
    policies
        What `on_exception` says, in its order.
    removed
        A gravestone.
    resumable
        Whether the body receives an iteration with a cursor.
    max_iterations, max_runtime
        After so many items, or so long, one execution gives way to the next. None: no limit.
    checkpoint_every
        The cursor is written after so many items, or when it was last written so long ago.
    location
        The file and line that declare it.
    """

    name: str
    function: str | None = None
    wait: timedelta = timedelta(0)
    skip_if: Condition | None = None
    wait_for: Matcher | None = field(default=None, hash=False)
    timeout: timedelta | None = None
    on_timeout: OnTimeout | None = None
    atomic: bool = False
    before: str | None = None
    after: str | None = None
    formerly: tuple[str, ...] = ()
    queue: str | None = None
    priority: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    on_crash: OnCrash | None = None
    policies: tuple[Policy, ...] = ()
    removed: bool = False
    is_async: bool = False
    resumable: bool = False
    max_iterations: int | None = None
    max_runtime: timedelta | None = None
    checkpoint_every: int | timedelta = 1
    location: Location | None = None

    @property
    def is_removed(self) -> bool:
        return self.removed

    @property
    def is_runnable(self) -> bool:
        return not self.removed

    @property
    def conditional(self) -> bool:
        """Whether something has to be asked before the step can run."""
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
