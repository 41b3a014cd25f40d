"""The decorators of steps, and what they leave in a class body until the class is made."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, get_overloads, overload

from geneva_drive.definition.collection import OnCrash, OnTimeout
from geneva_drive.definition.conditions import Test
from geneva_drive.definition.matchers import Matcher
from geneva_drive.definition.options import STEP_OPTIONS, options_of
from geneva_drive.definition.policies import Action, ExceptionPolicy
from geneva_drive.definition.validation import (
    MISSING,
    Declared,
    Location,
    Place,
    caller_location,
    checked_duration,
    location_of,
)


@dataclass(eq=False, repr=False)
class DeclaredStep(Declared):
    """A step or a gravestone in a class body, as it was written."""

    options: dict[str, Any]
    _: KW_ONLY
    arguments: tuple[Any, ...] = ()  # positional arguments that should not have been given
    waits: Any = MISSING  # the ``waits`` of a series, else MISSING
    removed: bool = False
    resumable: bool = False

    kind = "step"

    @property
    def plain(self) -> Any:
        return MISSING if self.removed or self.waits is not MISSING else self.function

    def series_waits(self, place: Place) -> tuple[timedelta, ...] | None:
        if self.waits is MISSING:
            return None
        if self.arguments:
            raise place.error(
                f"{self.arguments[0]!r} is one argument too many. Give a function and waits=[…]."
            )
        for option, given in self.options.items():
            if option in STEP_OPTIONS and not STEP_OPTIONS[option].of_series:
                raise place.error(f"{option}={given!r} cannot hold for each step of a series. Leave it out.")
        if isinstance(self.waits, str | Mapping) or not isinstance(self.waits, Iterable):
            raise place.error(f"waits={self.waits!r} is not a list. Give a list of timedeltas.")
        # Stored, because it may be an iterator, and every subclass reads it again.
        self.waits = waits = tuple(self.waits)
        if not waits:
            raise place.error("waits is empty, which makes no step. Give at least one timedelta.")
        for number, wait in enumerate(waits):
            place.check(checked_duration, wait, f"waits[{number}]")
        return waits


class PendingStep(DeclaredStep):
    """``@step(…)`` before it got its function. Left in a class body, it is a mistake."""

    def __call__(self, function: Any = MISSING, *arguments: Any, **named: Any) -> DeclaredStep:
        return DeclaredStep(
            function,
            location_of(function) or self.location,
            {**self.options, **named},
            arguments=(*self.arguments, *arguments),
            resumable=self.resumable,
        )


F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
Predicate = Test | str | bool
OnException = Action | ExceptionPolicy | Sequence[Action | ExceptionPolicy]


def _checked_with_the_class(written: Callable[P, Any]) -> Callable[P, Any]:
    """Keep the signature of ``series`` for readers and type checkers, and take any argument.

    A wrong one is refused when the class is made, with the class and the line in the message.
    """

    @functools.wraps(written)
    def series(self: Any, function: Any, *arguments: Any, waits: Any, **options: Any) -> DeclaredStep:
        return DeclaredStep(
            function, caller_location(1), options, arguments=arguments, waits=waits, resumable=self.resumable
        )

    return series  # type: ignore[return-value]


class _Decorator:
    resumable = False

    def __init__(self) -> None:
        # For help() and inspect.signature(): the overload that has the function and every option.
        call: Any = type(self).__call__
        written = inspect.signature(get_overloads(call)[0])
        _, function, *options = written.parameters.values()
        self.__signature__ = written.replace(parameters=[function.replace(default=None), *options])

    def _declared(self, arguments: tuple[Any, ...], options: dict[str, Any], at: Location) -> DeclaredStep:
        if len(arguments) == 1 and not isinstance(arguments[0], str):
            at = location_of(arguments[0]) or at
            return DeclaredStep(arguments[0], at, options, resumable=self.resumable)
        return PendingStep(MISSING, at, options, arguments=arguments, resumable=self.resumable)


class StepDecorator(_Decorator):
    """Declare a step: one unit of work. Steps run in the order of the class body, after inherited ones.

    ::

        @step
        def authorize(self): ...

        @step(wait=timedelta(hours=1), skip_if="no_email")
        def send_receipt(self): ...
    """

    @overload
    def __call__(
        self,
        function: F,
        /,
        *,
        wait: timedelta | None = None,
        skip_if: Predicate | None = None,
        run_if: Predicate | None = None,
        wait_for: str | Matcher | None = None,
        timeout: timedelta | None = None,
        on_timeout: OnTimeout | None = None,
        before: str | None = None,
        after: str | None = None,
        formerly: Iterable[str] | None = None,
        atomic: bool | None = None,
        queue: str | None = None,
        priority: int | None = None,
        on_crash: OnCrash | None = None,
        on_exception: OnException | None = None,
    ) -> F: ...
    @overload
    def __call__(
        self,
        *,
        wait: timedelta | None = None,
        skip_if: Predicate | None = None,
        run_if: Predicate | None = None,
        wait_for: str | Matcher | None = None,
        timeout: timedelta | None = None,
        on_timeout: OnTimeout | None = None,
        before: str | None = None,
        after: str | None = None,
        formerly: Iterable[str] | None = None,
        atomic: bool | None = None,
        queue: str | None = None,
        priority: int | None = None,
        on_crash: OnCrash | None = None,
        on_exception: OnException | None = None,
    ) -> Callable[[F], F]: ...
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._declared(arguments, options, caller_location(1))

    @_checked_with_the_class
    def series(
        self,
        function: Callable[[Any], Any],
        *,
        waits: Iterable[timedelta],
        skip_if: Predicate | None = None,
        run_if: Predicate | None = None,
        wait_for: str | Matcher | None = None,
        timeout: timedelta | None = None,
        on_timeout: OnTimeout | None = None,
        before: str | None = None,
        after: str | None = None,
        atomic: bool | None = None,
        queue: str | None = None,
        priority: int | None = None,
        on_crash: OnCrash | None = None,
        on_exception: OnException | None = None,
    ) -> Any:
        """Declare one step for each wait, all with the same code: ``polls`` makes ``polls_1``, ``polls_2`` …

        Parameters
        ----------
        function
            A function of the workflow, from the class body or from outside.
        waits
            Timedeltas: the wait of each step. At least one. The other options are those of ``@step``, and each
            step gets them.
        """


class ResumableStepDecorator(_Decorator):
    """Declare a resumable step: a long loop that continues from its cursor after an interruption.

    ::

        @resumable_step(max_runtime=timedelta(minutes=5))
        def notify_subscribers(self, iteration):
            for subscriber in iteration.iterate_queryset(self.hero.subscribers.all()):
                ...

    The body receives an `Iteration` and cannot be async.
    """

    resumable = True

    @overload
    def __call__(
        self,
        function: F,
        /,
        *,
        wait: timedelta | None = None,
        skip_if: Predicate | None = None,
        run_if: Predicate | None = None,
        wait_for: str | Matcher | None = None,
        timeout: timedelta | None = None,
        on_timeout: OnTimeout | None = None,
        before: str | None = None,
        after: str | None = None,
        formerly: Iterable[str] | None = None,
        queue: str | None = None,
        priority: int | None = None,
        on_crash: OnCrash | None = None,
        on_exception: OnException | None = None,
        max_iterations: int | None = None,
        max_runtime: timedelta | None = None,
        checkpoint_every: int | timedelta | None = None,
    ) -> F: ...
    @overload
    def __call__(
        self,
        *,
        wait: timedelta | None = None,
        skip_if: Predicate | None = None,
        run_if: Predicate | None = None,
        wait_for: str | Matcher | None = None,
        timeout: timedelta | None = None,
        on_timeout: OnTimeout | None = None,
        before: str | None = None,
        after: str | None = None,
        formerly: Iterable[str] | None = None,
        queue: str | None = None,
        priority: int | None = None,
        on_crash: OnCrash | None = None,
        on_exception: OnException | None = None,
        max_iterations: int | None = None,
        max_runtime: timedelta | None = None,
        checkpoint_every: int | timedelta | None = None,
    ) -> Callable[[F], F]: ...
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._declared(arguments, options, caller_location(1))

    @_checked_with_the_class
    def series(
        self,
        function: Callable[[Any, Any], Any],
        *,
        waits: Iterable[timedelta],
        skip_if: Predicate | None = None,
        run_if: Predicate | None = None,
        wait_for: str | Matcher | None = None,
        timeout: timedelta | None = None,
        on_timeout: OnTimeout | None = None,
        before: str | None = None,
        after: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        on_crash: OnCrash | None = None,
        on_exception: OnException | None = None,
        max_iterations: int | None = None,
        max_runtime: timedelta | None = None,
        checkpoint_every: int | timedelta | None = None,
    ) -> Any:
        """Declare one resumable step for each wait, all with the same code: see ``step.series``."""


def _document_options(cls: type[_Decorator]) -> None:
    rows = [
        f"{name}\n{textwrap.indent(option.text, '    ')}"
        for name, option in options_of(cls.resumable).items()
    ]
    raised = "StepConfigurationError\n    When the class is made, if an option is wrong or unknown."
    parts = [inspect.cleandoc(cls.__doc__ or ""), "", "Parameters", "----------", *rows]
    cls.__doc__ = "\n".join([*parts, "", "Raises", "------", raised, ""])


_document_options(StepDecorator)
_document_options(ResumableStepDecorator)
step = StepDecorator()
resumable_step = ResumableStepDecorator()


def removed_step(*arguments: Any, **options: Any) -> Any:
    """Leave a gravestone in place of a step that was removed while workflows may still be in flight.

    Give no arguments: its name is that of the attribute. An execution that was scheduled for the step is
    skipped, and the workflow continues with the next step. The step is never scheduled again.
    """
    return DeclaredStep(MISSING, caller_location(1), options, arguments=arguments, removed=True)
