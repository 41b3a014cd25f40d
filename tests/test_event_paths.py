"""Events on less common paths: failures, recovery, operator actions, start_many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from django.dispatch import Signal

from geneva_drive import ExceptionPolicy, Workflow, cancel_if, events, step
from geneva_drive.conf import settings as geneva
from geneva_drive.execution.executor import execute
from geneva_drive.execution.runner import Runner
from geneva_drive.housekeeping import recover
from geneva_drive.testing import crash_at, run_next_step, travel
from tests.testapp.models import Order

SIGNALS: dict[str, Signal] = {name: getattr(events, name) for name in events.__all__}
Heard = list[tuple[Any, ...]]


class ToldOnPaths(Workflow):
    """Two steps; the test decides what the first does."""

    may_proceed_without_hero = True
    exception_policies: ClassVar[list[Any]] = [ExceptionPolicy("reattempt", matching=OSError)]
    does: ClassVar[Callable[[Any], Any] | None] = None
    condition: ClassVar[Callable[[Any], bool] | None] = None

    class Meta:
        app_label = "testapp"

    @cancel_if
    def withdrawn(self) -> bool:
        condition = type(self).condition
        return condition is not None and condition(self)

    @step
    def first(self) -> None:
        body = type(self).does
        if body is not None:
            body(self)

    @step(skip_if=lambda workflow: True)
    def passed_over(self) -> None: ...

    @step
    def last(self) -> None: ...


@contextmanager
def listening(*names: str) -> Iterator[Heard]:
    """Record what is sent: the signal's name and its arguments, with rows replaced by their keys."""
    heard: Heard = []

    def receiver(name: str) -> Callable[..., None]:
        def receive(sender: Any, signal: Signal, workflow: Any, **arguments: Any) -> None:
            assert sender is type(workflow)
            if "execution" in arguments:
                arguments["execution"] = arguments["execution"].step_name
            if "seconds" in arguments:
                assert arguments.pop("seconds") >= 0
            heard.append((name, workflow.pk, *arguments.values()))

        return receive

    receivers = {name: receiver(name) for name in names or SIGNALS}
    for name, receive in receivers.items():
        SIGNALS[name].connect(receive, weak=False)
    try:
        yield heard
    finally:
        for name, receive in receivers.items():
            SIGNALS[name].disconnect(receive)


@pytest.fixture(autouse=True)
def _as_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToldOnPaths, "does", None)
    monkeypatch.setattr(ToldOnPaths, "condition", None)


def does(what: Callable[[Any], Any]) -> None:
    ToldOnPaths.does = staticmethod(what)


def only(heard: Heard, name: str) -> Heard:
    return [each[2:] for each in heard if each[0] == name]


pytestmark = pytest.mark.django_db(transaction=True)


def run(workflow: Workflow, *, inline_continuation: bool) -> None:
    """Run each scheduled execution, as a dispatcher would, until there is none."""
    while (row := workflow.executions.filter(state="scheduled", on_hold=False).first()) is not None:
        execute(row.pk, using=workflow._state.db, runner=Runner(inline_continuation=inline_continuation))


@pytest.mark.parametrize("inline_continuation", [False, True])
def test_the_same_events_are_sent_without_receivers_of_transitions(inline_continuation: bool) -> None:
    """Without such a receiver, PostgreSQL can start and end steps in one statement each."""
    with listening("precondition_checked", "step_performed", "execution_finalized") as heard:
        run(ToldOnPaths.start(), inline_continuation=inline_continuation)

    assert only(heard, "step_performed") == [("first", None), ("last", None)]
    assert only(heard, "execution_finalized") == [("first", False), ("passed_over", False), ("last", False)]


def test_start_many_sends_one_event_per_workflow() -> None:
    with listening("workflow_started") as heard:
        created, _ = ToldOnPaths.start_many([Order.objects.create(), Order.objects.create()])

    assert sorted(each[1] for each in heard) == sorted(workflow.pk for workflow in created)


CONTROLS: dict[str, tuple[Callable[[Any], Any], Heard]] = {
    "pause": (lambda workflow: workflow.pause(), [("ready", "paused")]),
    "resume": (lambda workflow: workflow.pause().resume(), [("ready", "paused"), ("paused", "ready")]),
    "resume_at": (
        lambda workflow: workflow.pause().resume_at("last"),
        [("ready", "paused"), ("paused", "ready")],
    ),
    "cancel": (lambda workflow: workflow.cancel(), [("ready", "canceled")]),
    "skip": (lambda workflow: workflow.skip(), []),
}


@pytest.mark.parametrize("case", CONTROLS.values(), ids=CONTROLS.keys())
def test_operator_actions_send_events(case: tuple[Callable[[Any], Any], Heard]) -> None:
    act, moves = case
    workflow = ToldOnPaths.start()

    with listening() as heard:
        act(workflow)

    assert only(heard, "workflow_transitioned") == moves


@pytest.mark.parametrize("act", ["resume_at", "cancel", "skip"])
def test_an_execution_ended_by_an_operator_sends_an_event(act: str) -> None:
    workflow = ToldOnPaths.start()
    with listening("execution_finalized") as heard:
        if act == "resume_at":
            workflow.pause().resume_at("last")
        else:
            getattr(workflow, act)()

    assert only(heard, "execution_finalized") == [("first", False)]


def test_an_error_in_a_condition_sends_the_verdict_failed() -> None:
    error = KeyError("the condition's own")

    def raises(workflow: Any) -> bool:
        raise error

    ToldOnPaths.condition = staticmethod(raises)
    with listening() as heard:
        run_next_step(ToldOnPaths.start(), raise_errors=False)

    assert only(heard, "precondition_checked") == [("first", "failed")]
    assert only(heard, "step_performed") == []
    assert only(heard, "execution_finalized") == [("first", False)]
    assert only(heard, "workflow_transitioned")[-1] == ("performing", "paused")


@pytest.mark.parametrize(
    ("error", "move"), [(KeyError(), ("performing", "paused")), (OSError(), ("performing", "ready"))]
)
def test_an_exception_sends_events(error: Exception, move: Any) -> None:
    def raises(workflow: Any) -> None:
        raise error

    does(raises)
    with listening() as heard:
        run_next_step(ToldOnPaths.start(), raise_errors=False)

    assert only(heard, "step_performed") == [("first", error)]
    assert only(heard, "execution_finalized") == [("first", False)]
    assert only(heard, "workflow_transitioned")[-1] == move


def test_a_recovery_sends_events() -> None:
    workflow = ToldOnPaths.start()
    with crash_at("performed"):
        run_next_step(workflow)

    with listening() as heard, travel(geneva.STUCK_AFTER + timedelta(minutes=1)):
        recover("default")

    assert only(heard, "execution_finalized") == [("first", False)]
    assert only(heard, "workflow_transitioned") == [("performing", "ready")]
