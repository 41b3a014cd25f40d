"""How a class body says what its steps are: ``@step``, ``step.series``, ``removed_step()``.

A decorator only notes what was written. The metaclass judges it, when the class, its bases and the step's
name are known; an error that came up earlier could not name them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload

from geneva_drive.definition.blueprint import MISSING, Location, caller_location
from geneva_drive.definition.policies import Action, ExceptionPolicy, Policy

if TYPE_CHECKING:
    from geneva_drive.definition.conditions import Condition
    from geneva_drive.definition.matchers import Matcher

__all__ = [
    "DeclaredStep",
    "ResumableOptions",
    "ResumableSeriesOptions",
    "ResumableStepDecorator",
    "SeriesOptions",
    "StepDecorator",
    "StepDefinition",
    "StepOptions",
    "removed_step",
    "resumable_step",
    "step",
]

F = TypeVar("F", bound=Callable[..., Any])
Test = Callable[[Any], object] | str | bool
OnCrash = Literal["reattempt", "pause", "cancel"]
OnException = Action | ExceptionPolicy | Sequence[Action | ExceptionPolicy]
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
        How long it may stand parked for its signal. None: as long as it takes.
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


class SeriesOptions(TypedDict, total=False):
    """The options that steps of a series share. None means the default, for each."""

    skip_if: Test | None
    run_if: Test | None
    wait_for: str | Matcher | None
    timeout: timedelta | None
    on_timeout: OnTimeout | None
    before: str | None
    after: str | None
    atomic: bool | None
    queue: str | None
    priority: int | None
    on_crash: OnCrash | None
    on_exception: OnException | None


class StepOptions(SeriesOptions, total=False):
    """The options of one step."""

    wait: timedelta | None
    formerly: Iterable[str] | None


class ResumableSeriesOptions(SeriesOptions, total=False):
    """The options that resumable steps of a series share."""

    max_iterations: int | None
    max_runtime: timedelta | None
    checkpoint_every: int | timedelta | None


class ResumableOptions(StepOptions, ResumableSeriesOptions, total=False):
    """The options of one resumable step."""


class DeclaredStep:
    """What stands in a class body until the metaclass has read it.

    Attributes
    ----------
    function
        The step's code; MISSING for a gravestone, and for a decorator that decorates nothing.
    waits
        For a series, what was given as waits; else MISSING.
    arguments
        Positional arguments that should not be there.
    """

    __slots__ = ("arguments", "function", "location", "options", "removed", "resumable", "waits")

    def __init__(
        self,
        function: Any,
        options: Mapping[str, Any],
        location: Location,
        *,
        arguments: tuple[Any, ...] = (),
        waits: Any = MISSING,
        removed: bool = False,
        resumable: bool = False,
    ) -> None:
        self.function = function
        self.options = dict(options)
        self.location = location
        self.arguments = arguments
        self.waits = waits
        self.removed = removed
        self.resumable = resumable

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        # Decorators ask whether what they are given is callable, and this one must not look like an option.
        return self.function(*arguments, **named)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        # Only a plain mixin still has this object in its body; its method stays callable.
        return self.function.__get__(instance, owner) if hasattr(self.function, "__get__") else self


class _Pending(DeclaredStep):
    """``@step(…)`` before it got its function. Left in a class body, it is a mistake."""

    __slots__ = ()

    def __call__(self, function: Any = MISSING, *arguments: Any, **named: Any) -> DeclaredStep:
        location = _location_of(function) or self.location
        return DeclaredStep(
            function,
            {**self.options, **named},
            location,
            arguments=(*self.arguments, *arguments),
            resumable=self.resumable,
        )


def _location_of(function: Any) -> Location | None:
    code = getattr(function, "__code__", None)
    return None if code is None else Location(code.co_filename, code.co_firstlineno)


class StepDecorator:
    """Declare a step: one unit of work, run in the order of the class body after inherited steps.

    ::

        @step
        def authorize(self): ...

        @step(wait=timedelta(hours=1), skip_if="no_email")
        def send_receipt(self): ...

    Parameters
    ----------
    wait
        A timedelta from zero: how long after it was scheduled the step is due.
    skip_if, run_if
        A callable of the workflow, a method's name or a boolean, looked at each time before the step.
        At most one of the two.
    wait_for
        A signal's name, a `SignalMatcher`, or any object with ``matches(signal)``: the step runs once such a
        signal is there, and reads it as ``self.received_signal``. With ``wait``, it first waits for its time.
    timeout, on_timeout
        A timedelta, counted from when the step is found to have no signal yet, and what follows then:
        ``"skip"`` the step, ``"cancel"`` or ``"pause"`` the workflow. Left out, the exception policies decide
        by a `SignalWaitTimeout`; without one the workflow pauses.
    before, after
        The name of a step declared earlier, next to which this one is placed. At most one of the two.
    formerly
        Older names of the step, so that rows which still have them run it.
    atomic
        Run the body and its completion in one transaction.
    queue, priority
        Job options. A lower priority runs first.
    on_crash
        ``"reattempt"``, ``"pause"`` or ``"cancel"``: what recovery does when the process died.
    on_exception
        What becomes of the workflow when the step raises: ``"pause"``, ``"cancel"``, ``"skip"``,
        ``"reattempt"``, an `ExceptionPolicy`, or a list of these.

    Raises
    ------
    StepConfigurationError
        When the class is made, if an option is wrong or unknown.
    """

    @overload
    def __call__(self, function: F, /) -> F: ...
    @overload
    def __call__(self, function: F, /, **options: Unpack[StepOptions]) -> F: ...
    @overload
    def __call__(self, **options: Unpack[StepOptions]) -> Callable[[F], F]: ...
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return _declared(arguments, options, caller_location(1))

    def series(
        self,
        function: Callable[[Any], Any],
        *arguments: Any,
        waits: Iterable[timedelta],
        **options: Unpack[SeriesOptions],
    ) -> Any:
        """Declare one step per wait, all with the same code: ``polls`` makes ``polls_1``, ``polls_2`` …

        Parameters
        ----------
        function
            A function of the workflow, from the class body or from outside.
        waits
            Timedeltas: the wait of each step. At least one.
        """
        return DeclaredStep(function, options, caller_location(1), arguments=arguments, waits=waits)


class ResumableStepDecorator:
    """Declare a resumable step: a long loop that goes on from its cursor after whatever interrupts it.

    ::

        @resumable_step(max_runtime=timedelta(minutes=5))
        def notify_subscribers(self, iteration):
            for subscriber in iteration.iterate_queryset(self.hero.subscribers.all()):
                ...

    The body receives an `Iteration`. It takes the options of ``@step``, but for ``atomic``, and these:

    Parameters
    ----------
    max_iterations
        An integer from 1: after so many items the execution gives way, and a successor goes on.
    max_runtime
        A positive timedelta: the same after so long, at the next item.
    checkpoint_every
        When the cursor is written: after so many items (an integer from 1), or when it was last written so
        long ago (a positive timedelta). Default: 1, after each item. A killed process repeats what was done
        since the last time, so at most ``checkpoint_every`` items, or the items of that long and one more. An
        exception, a pause, a cancel and a worker that stops repeat nothing, whatever is given here.

    Raises
    ------
    StepConfigurationError
        When the class is made, if an option is wrong or unknown, or the body is async.
    """

    @overload
    def __call__(self, function: F, /) -> F: ...
    @overload
    def __call__(self, function: F, /, **options: Unpack[ResumableOptions]) -> F: ...
    @overload
    def __call__(self, **options: Unpack[ResumableOptions]) -> Callable[[F], F]: ...
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return _declared(arguments, options, caller_location(1), resumable=True)

    def series(
        self,
        function: Callable[[Any, Any], Any],
        *arguments: Any,
        waits: Iterable[timedelta],
        **options: Unpack[ResumableSeriesOptions],
    ) -> Any:
        """Declare one resumable step per wait, all with the same code: see ``step.series``."""
        return DeclaredStep(
            function, options, caller_location(1), arguments=arguments, waits=waits, resumable=True
        )


def _declared(
    arguments: tuple[Any, ...], options: Mapping[str, Any], location: Location, *, resumable: bool = False
) -> DeclaredStep:
    if len(arguments) == 1 and not isinstance(arguments[0], str):
        function = arguments[0]
        return DeclaredStep(function, options, _location_of(function) or location, resumable=resumable)
    return _Pending(MISSING, options, location, arguments=arguments, resumable=resumable)


step: StepDecorator = StepDecorator()
resumable_step: ResumableStepDecorator = ResumableStepDecorator()


def removed_step(*arguments: Any, **options: Any) -> Any:
    """Leave a gravestone where a step used to be, while workflows may still be in flight.

    It takes its name from the attribute, and nothing else. An execution that was scheduled for the step is
    skipped, and the workflow goes on with the next one. Nothing is scheduled for it any more.
    """
    return DeclaredStep(MISSING, options, caller_location(1), arguments=arguments, removed=True)
