"""Workflows that wait for signals."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from geneva_drive import (
    ExceptionPolicy,
    SignalMatcher,
    SignalWaitTimeout,
    Workflow,
    on_exception,
    step,
)
from tests.testapp.models import Effect


class Noting(Workflow):
    """Records what its steps received."""

    may_proceed_without_hero = True

    class Meta:
        abstract = True
        app_label = "signals"

    def note(self, step_name: str, what: Any = "") -> None:
        """Write a row that shows that a body ran."""
        Effect.objects.using(self._state.db).create(
            workflow=str(self.pk), step=step_name, note=str(what)[:100]
        )


class Parcel(Noting):
    """Packs, waits for a scan, notifies."""

    @step
    def pack(self) -> None:
        self.note("pack")

    @step(wait_for="scanned")
    def ship(self) -> None:
        self.note("ship", self.received_signal.payload)

    @step
    def tell(self) -> None:
        self.note("tell", self.received_signal)


class FailsOnce(Noting):
    """Its step fails while the payload of its signal is in ``failing``."""

    failing: set[str] = set()

    @step(wait_for="go")
    def work(self) -> None:
        self.note("work", self.received_signal.payload)
        if self.received_signal.payload in self.failing:
            raise RuntimeError("not yet")

    @step(wait_for="go")
    def more(self) -> None:
        self.note("more", self.received_signal.payload)


class Retried(Noting):
    """Attempts its step three times with the same signal."""

    @step(wait_for="go")
    def work(self) -> None:
        self.note("work", self.received_signal.pk)
        if Effect.objects.using(self._state.db).filter(workflow=str(self.pk)).count() < 3:
            self.reattempt()


class Enough(Noting):
    """Waits for a payment that is large enough."""

    @step(wait_for=SignalMatcher("paid", lambda workflow, payload: payload["amount"] >= workflow.metadata))
    def ship(self) -> None:
        self.note("ship", self.received_signal.payload["amount"])


class OneOf:
    """Accepts several names."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __str__(self) -> str:
        return " or ".join(self.names)

    def matches(self, signal: Any) -> bool:
        """Any of the names matches."""
        return signal.name in self.names


class EitherWay(Noting):
    """Waits for one of two names."""

    @step(wait_for=OneOf("paid", "waived"))
    def ship(self) -> None:
        self.note("ship", self.received_signal.name)


class LaterAndSignal(Noting):
    """First waits an hour, then for its signal."""

    @step(wait=timedelta(hours=1), wait_for="go")
    def work(self) -> None:
        self.note("work", self.received_signal.payload)


class TimesOutSkip(Noting):
    """Waits a day, then skips the step."""

    @step(wait_for="go", timeout=timedelta(days=1), on_timeout="skip")
    def work(self) -> None:
        self.note("work", self.received_signal.payload)

    @step
    def after(self) -> None:
        self.note("after")


class TimesOutCancel(Noting):
    """Waits a day, then cancels."""

    @step(wait_for="go", timeout=timedelta(days=1), on_timeout="cancel")
    def work(self) -> None:
        self.note("work")


class TimesOutPause(Noting):
    """Waits a day, then pauses."""

    @step(wait_for="go", timeout=timedelta(days=1), on_timeout="pause")
    def work(self) -> None:
        self.note("work", self.received_signal.payload)


class TimesOut(Noting):
    """Waits a day; then the policies decide."""

    @step(wait_for="go", timeout=timedelta(days=1))
    def work(self) -> None:
        self.note("work", self.received_signal.payload)


class TimesOutByPolicy(Noting):
    """Waits a day, three times in total, then cancels."""

    @step(
        wait_for="go",
        timeout=timedelta(days=1),
        on_exception=ExceptionPolicy(
            "reattempt", matching=SignalWaitTimeout, max_reattempts=2, terminal_action="cancel"
        ),
    )
    def work(self) -> None:
        self.note("work", self.received_signal.payload)


class TimesOutToHandler(Noting):
    """Its handler decides what happens after a timeout."""

    @step(wait_for="go", timeout=timedelta(days=1))
    def work(self) -> None:
        self.note("work")

    @step
    def after(self) -> None:
        self.note("after")

    @on_exception(SignalWaitTimeout)
    def nobody_spoke(self, error: SignalWaitTimeout) -> None:
        self.note("handler", self.received_signal)
        self.skip()


class Skippable(Noting):
    """Its step is skipped if ``metadata`` says so."""

    @step(wait_for="go", skip_if=lambda workflow: bool(workflow.metadata))
    def work(self) -> None:
        self.note("work")

    @step(wait_for="go")
    def more(self) -> None:
        self.note("more", self.received_signal.payload)


class BadMatcher(Noting):
    """Its condition raises an error for payloads that are not dicts."""

    @step(wait_for=SignalMatcher("go", lambda workflow, payload: payload["yes"]))
    def work(self) -> None:
        self.note("work")

    @step
    def after(self) -> None:
        self.note("after")


class OnlyLooks(Noting):
    """Its matcher tries what a matcher must not do."""

    attempt: str = ""

    @step(wait_for=SignalMatcher("go", lambda workflow, payload: getattr(workflow, payload[0])(*payload[1:])))
    def work(self) -> None:
        self.note("work")


class Chatty(Noting):
    """Sends itself the signal that it waits for."""

    @step
    def first(self) -> None:
        self.signal("hello", "from first")

    @step(wait_for="hello")
    def second(self) -> None:
        assert self.received_signal.workflow is self
        self.note("second", self.received_signal.payload)


class AtomicStep(Noting):
    """Writes a row, and fails if its signal says so."""

    @step(wait_for="go", atomic=True)
    def work(self) -> None:
        self.note("work", self.received_signal.payload)
        if self.received_signal.payload == "fail":
            raise RuntimeError("as told")
