"""Handlers and matchers: their decisions, what they must not do, and their own errors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from django.db import connection, transaction

from geneva_drive import ExceptionPolicy, clock, on_exception, step
from geneva_drive.conf import settings as geneva
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.housekeeping import recover
from geneva_drive.testing import assert_state, assert_step, run_next_step, run_to_end, travel
from tests.execution.scripted import Scripted, play, rows

pytestmark = pytest.mark.django_db


class Busy(Exception):
    """An error of this module; a test looks for its full name."""


class FailsHandled(Scripted):
    reacts: ClassVar[Callable[..., Any]]

    @step
    def work(self) -> None:
        self.left_behind = "by the body"
        self.script(self)

    @step
    def after(self) -> None: ...

    @on_exception(Busy, max_reattempts=2, terminal_action="cancel")
    def react(self, error: Exception) -> None:
        Scripted.handled.append((error, self.left_behind, self.current_execution.pk))
        type(self).reacts(self, error)


def react(workflow_cls: type[FailsHandled], reacts: Callable[..., Any]) -> None:
    workflow_cls.reacts = staticmethod(reacts)


@pytest.mark.parametrize(
    ("word", "state", "outcome", "becomes"),
    [
        ("pause", "failed", "failed", "paused"),
        ("cancel", "failed", "canceled", "canceled"),
        ("skip", "skipped", "skipped", "finished"),
        ("finish", "completed", "success", "finished"),
    ],
)
def test_a_handler_decides_by_flow_control(word: str, state: str, outcome: str, becomes: str) -> None:
    error = Busy("too much")
    react(FailsHandled, lambda workflow, _: getattr(workflow, word)(reason="said so"))

    workflow = run_to_end(play(FailsHandled, error))

    assert_state(workflow, becomes)
    execution = assert_step(workflow, "work", state, outcome)
    assert Scripted.handled == [(error, "by the body", execution.pk)]
    assert execution.error_message == "too much"
    assert execution.metadata["policy"] == "react"
    assert execution.metadata["reason"] == "said so"


def test_a_handlers_reattempts_are_counted_and_limited() -> None:
    react(FailsHandled, lambda workflow, _: workflow.reattempt(wait=timedelta(hours=5)))

    workflow = run_to_end(play(FailsHandled, Busy()))

    assert_state(workflow, "canceled")
    assert Scripted.runs == 3
    waits = [clock.utc(row.scheduled_for) - clock.utc(row.created_at) for row in rows(workflow)]
    assert waits == [timedelta(0), timedelta(hours=5), timedelta(hours=5)]


def test_a_handler_without_a_decision_pauses_the_workflow() -> None:
    react(FailsHandled, lambda workflow, _: None)
    workflow = play(FailsHandled, Busy("unanswered"))

    with pytest.raises(Busy, match="unanswered"):
        run_next_step(workflow)

    assert_state(workflow, "paused")
    execution = assert_step(workflow, "work", "failed", "failed")
    assert execution.metadata["reason"] == "the handler 'react' decided nothing"


@pytest.mark.parametrize("second", [KeyError("the second"), SystemExit(3)])
def test_a_handler_that_raises_pauses_with_both_errors_recorded(second: BaseException) -> None:
    def raises(workflow: Any, error: Exception) -> None:
        raise second

    react(FailsHandled, raises)
    workflow = play(FailsHandled, Busy("the first"))

    with pytest.raises(type(second)) as caught:
        run_next_step(workflow)

    assert caught.value.__context__ is not None
    assert_state(workflow, "paused")
    execution = assert_step(workflow, "work", "failed", "failed")
    assert execution.error_class == f"{__name__}.Busy"
    assert execution.error_message is not None
    assert "the first\n\nThen the handler 'react' raised builtins." in execution.error_message
    assert execution.error_traceback is not None
    assert "Busy: the first" in execution.error_traceback
    assert type(second).__name__ in execution.error_traceback


def test_a_handler_that_raises_the_same_error_again_records_it_once() -> None:
    def raises(workflow: Any, error: Exception) -> None:
        raise error

    react(FailsHandled, raises)
    workflow = play(FailsHandled, Busy("not mine"))

    with pytest.raises(Busy):
        run_next_step(workflow)

    execution = assert_step(workflow, "work", "failed", "failed")
    assert execution.error_message == "not mine"
    assert execution.metadata["reason"] == "the handler 'react' raised Busy"


def test_a_handler_runs_without_a_lock_and_without_a_transaction() -> None:
    seen: list[Any] = []

    def looks(workflow: Any, error: Exception) -> None:
        seen.append(len(connection.atomic_blocks))
        with pytest.raises(InvalidStateError, match=r"transaction\.atomic"), transaction.atomic():
            workflow.skip()
        workflow.skip()

    react(FailsHandled, looks)
    outside = len(connection.atomic_blocks)

    run_to_end(play(FailsHandled, Busy()))

    assert seen == [outside]


def test_a_handlers_decision_is_fenced(caplog: pytest.LogCaptureFixture) -> None:
    def meanwhile(workflow: Any, error: Exception) -> None:
        # Recovered meanwhile, so the row belongs to another process.
        with travel(geneva.STUCK_AFTER + timedelta(minutes=1)):
            recover(str(workflow._state.db))
        workflow.cancel()

    react(FailsHandled, meanwhile)
    workflow = run_next_step(play(FailsHandled, Busy()))

    assert_state(workflow, "ready")
    assert [row.outcome for row in rows(workflow)] == ["recovered", None]
    assert "was recovered or changed while the step was running" in caplog.text


def test_a_handler_cannot_suspend() -> None:
    react(FailsHandled, lambda workflow, _: workflow.suspend())

    workflow = play(FailsHandled, Busy())
    with pytest.raises(InvalidStateError, match="suspend"):
        run_next_step(workflow)

    assert_state(workflow, "paused")


class FailsAsync(Scripted):
    exception_policies: ClassVar[list[Any]] = [
        ExceptionPolicy(matching=KeyError, handler=lambda workflow, error: workflow.skip())
    ]

    @step
    async def work(self) -> None:
        self.script(self)

    @on_exception(Busy)
    async def react(self, error: Exception) -> None:
        self.cancel(reason="asked for")


@pytest.mark.parametrize(("error", "becomes"), [(Busy(), "canceled"), (KeyError(), "finished")])
def test_handlers_can_be_async_or_plain_callables(error: Exception, becomes: str) -> None:
    assert_state(run_to_end(play(FailsAsync, error)), becomes)


class BrokenMatcher:
    def matches(self, error: Exception) -> bool:
        raise LookupError("the matcher's own mistake")


class FailsMismatched(Scripted):
    @step(on_exception=[ExceptionPolicy("skip", matching=BrokenMatcher()), "skip"])
    def work(self) -> None:
        self.script(self)


def test_a_matcher_that_raises_pauses_with_both_errors_recorded() -> None:
    workflow = play(FailsMismatched, Busy("the first"))

    with pytest.raises(LookupError):
        run_next_step(workflow)

    assert_state(workflow, "paused")
    execution = assert_step(workflow, "work", "failed", "failed")
    assert execution.error_message is not None
    assert "the first\n\nThen a policy's matching raised" in execution.error_message
