"""What a subclass may do before, after and around each step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.db import transaction

from geneva_drive import InvalidStateError, StepExecution, step
from geneva_drive.testing import assert_state, assert_step, run_next_step, run_to_end
from tests.execution.support import Free, history, run, trace
from tests.testapp.models import Effect

pytestmark = pytest.mark.django_db


class HookedBase(Free):
    class Meta:
        abstract = True
        app_label = "testapp"

    def before_step(self, execution: StepExecution) -> None:
        trace.append(f"before {execution.step_name}")

    def after_step(self, execution: StepExecution) -> None:
        trace.append(f"after {execution.step_name}")

    @contextmanager
    def around_step(self, execution: StepExecution) -> Iterator[None]:
        trace.append("in")
        try:
            yield
        finally:
            trace.append("out")


class HookedPlain(HookedBase):
    @step
    def one(self) -> None:
        trace.append("one")

    @step(skip_if=True)
    def passed_over(self) -> None:
        trace.append("never")

    @step
    def two(self) -> None:
        trace.append("two")


def test_hooks_run_around_each_body() -> None:
    run_to_end(HookedPlain.start())

    assert trace == [
        *("in", "before one", "one", "after one", "out"),
        *("in", "before two", "two", "after two", "out"),
    ]


def test_hooks_see_a_body_that_ends_with_flow_control_as_completed() -> None:
    class Pausing(HookedBase):
        @step
        def pauses(self) -> None:
            self.pause()

    workflow = run_next_step(Pausing.start())

    assert trace == ["in", "before pauses", "after pauses", "out"]
    assert_state(workflow, "paused")


def test_an_error_that_around_step_swallows_ends_the_step_as_a_success_after_one_run() -> None:
    class Swallowing(Free):
        @contextmanager
        def around_step(self, execution: StepExecution) -> Iterator[None]:
            with suppress(ValueError):
                yield

        @step
        def fails(self) -> None:
            trace.append("fails")
            raise ValueError("swallowed")

    workflow = run_to_end(Swallowing.start())

    assert trace == ["fails"]
    assert_state(workflow, "finished")
    assert_step(workflow, "fails", "completed", outcome="success")


def test_after_an_error_in_the_body_only_around_step_is_informed() -> None:
    class Failing(HookedBase):
        @step
        def fails(self) -> None:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_next_step(Failing.start())

    assert trace == ["in", "before fails", "out"]


@pytest.mark.parametrize("hook", ["before_step", "after_step", "around_step"])
def test_an_error_in_a_hook_fails_the_step(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: Any, execution: StepExecution) -> Any:
        raise LookupError(f"in {hook}")

    workflow = HookedPlain.start()
    monkeypatch.setattr(HookedPlain, hook, failing, raising=False)

    with pytest.raises(LookupError):
        run(workflow)

    assert assert_step(workflow, "one", "failed", "failed").error_message == f"in {hook}"
    assert ("one" in trace) is (hook == "after_step")
    assert_state(workflow, "paused")


@pytest.mark.parametrize("hook", ["before_step", "after_step", "around_step"])
@pytest.mark.parametrize("word", ["cancel", "pause", "skip", "finish", "reattempt", "suspend"])
def test_flow_control_is_refused_in_hooks(hook: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def speaking(self: Any, execution: StepExecution) -> Any:
        getattr(self, word)()

    workflow = HookedPlain.start()
    monkeypatch.setattr(HookedPlain, hook, speaking, raising=False)

    with pytest.raises(InvalidStateError, match=rf"{word}\(\) was called in a hook"):
        run(workflow)

    assert history(workflow) == [("one", "failed", "failed")]


def test_flow_control_is_accepted_in_a_block_opened_by_around_step() -> None:
    class Wrapped(Free):
        @contextmanager
        def around_step(self, execution: StepExecution) -> Iterator[None]:
            with transaction.atomic():
                yield

        @step
        def pauses(self) -> None:
            Effect.objects.create(workflow="1", step="pauses")
            self.pause()

    workflow = run_next_step(Wrapped.start())

    assert_state(workflow, "paused")
    assert Effect.objects.count() == 1


def test_flow_control_in_a_block_inside_that_of_around_step_is_refused() -> None:
    class Nested(Free):
        @contextmanager
        def around_step(self, execution: StepExecution) -> Iterator[None]:
            with transaction.atomic():
                yield

        @step
        def pauses(self) -> None:
            with transaction.atomic():
                self.pause()

    with pytest.raises(InvalidStateError, match="atomic"):
        run(Nested.start())
