"""What the decorators of steps leave in a class body, as it was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict, TypeVar, Unpack, overload

from geneva_drive.definition.collection import OnCrash, OnTimeout
from geneva_drive.definition.conditions import Test
from geneva_drive.definition.matchers import Matcher
from geneva_drive.definition.policies import Action, ExceptionPolicy
from geneva_drive.definition.validation import MISSING, Declared, Location, caller_location, location_of


class DeclaredStep(Declared):
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

    __slots__ = ("arguments", "options", "removed", "resumable", "waits")

    kind = "step"

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
        super().__init__(function, location)
        self.options = dict(options)
        self.arguments = arguments
        self.waits = waits
        self.removed = removed
        self.resumable = resumable


class PendingStep(DeclaredStep):
    """``@step(…)`` before it got its function. Left in a class body, it is a mistake."""

    __slots__ = ()

    def __call__(self, function: Any = MISSING, *arguments: Any, **named: Any) -> DeclaredStep:
        location = location_of(function) or self.location
        return DeclaredStep(
            function,
            {**self.options, **named},
            location,
            arguments=(*self.arguments, *arguments),
            resumable=self.resumable,
        )


F = TypeVar("F", bound=Callable[..., Any])
OnException = Action | ExceptionPolicy | Sequence[Action | ExceptionPolicy]


class SeriesOptions(TypedDict, total=False):
    """The options that steps of a series share. None means the default, for each."""

    skip_if: Test | str | bool | None
    run_if: Test | str | bool | None
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
        return DeclaredStep(function, options, location_of(function) or location, resumable=resumable)
    return PendingStep(MISSING, options, location, arguments=arguments, resumable=resumable)


step: StepDecorator = StepDecorator()
resumable_step: ResumableStepDecorator = ResumableStepDecorator()


def removed_step(*arguments: Any, **options: Any) -> Any:
    """Leave a gravestone where a step used to be, while workflows may still be in flight.

    It takes its name from the attribute, and nothing else. An execution that was scheduled for the step is
    skipped, and the workflow goes on with the next one. Nothing is scheduled for it any more.
    """
    return DeclaredStep(MISSING, options, caller_location(1), arguments=arguments, removed=True)
