"""Django signals: what is sent and when, and that a receiver breaks nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from django.db import transaction
from django.dispatch import Signal
from django.test import override_settings

from geneva_drive import Workflow, cancel_if, events, removed_step, step
from geneva_drive.definition.flow import Pause
from geneva_drive.execution import executor, prepare
from geneva_drive.execution.executor import execute
from geneva_drive.execution.runner import Runner
from geneva_drive.testing import assert_state, run_next_step
from tests.execution.support import Free, active, own_classes_forgotten, run
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _left_alone() -> Iterator[None]:
    with own_classes_forgotten():
        yield


class Told(Free):
    @step
    def one(self) -> None:
        pass

    buried = removed_step()

    @step(skip_if=True)
    def passed_over(self) -> None:
        pass

    @step
    def two(self) -> None:
        pass


@contextmanager
def heard(*signals: Signal) -> Iterator[list[dict[str, Any]]]:
    """Record the events sent in the block, in order, each with its signal and whether a transaction was open."""
    told: list[dict[str, Any]] = []

    def receiver(signal: Signal, **given: Any) -> None:
        told.append({**given, "signal": signal, "open": transaction.get_connection().in_atomic_block})

    for signal in signals:
        signal.connect(receiver)
    try:
        yield told
    finally:
        for signal in signals:
            signal.disconnect(receiver)


@pytest.mark.django_db(transaction=True)
def test_a_start_sends_its_event_after_the_commit_and_never_after_a_rollback() -> None:
    with heard(events.workflow_started) as told:
        with transaction.atomic():
            workflow = Told.start()
            assert told == []
        with transaction.atomic():
            Told.start()
            transaction.set_rollback(True)
        Told.start_many([Order.objects.create(), Order.objects.create()])
        Workflow.objects.get(pk=workflow.pk)

    assert [(each["sender"], each["open"]) for each in told] == 3 * [(Told, False)]
    assert told[0]["workflow"].pk == workflow.pk


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("inline_continuation", [False, True])
def test_every_state_change_sends_an_event(inline_continuation: bool) -> None:
    workflow = Told.start()
    with heard(events.workflow_transitioned) as told:
        while workflow.state == "ready":
            run(workflow, inline_continuation=inline_continuation)

    moves = [(each["before"], each["after"]) for each in told]
    # Each starts where the one before ended.
    assert all(before[1] == after[0] for before, after in pairwise(moves))
    assert (moves[0], moves[-1][1]) == (("ready", "performing"), "finished")
    assert moves.count(("ready", "performing")) == 2
    assert {each["sender"] for each in told} == {Told}
    assert not any(each["open"] for each in told)


@pytest.mark.django_db(transaction=True)
def test_operator_actions_send_events_too() -> None:
    workflow = Told.start()
    with heard(events.workflow_transitioned) as told:
        workflow.pause()
        workflow.resume()
        workflow.skip()
        workflow.cancel()

    assert [(each["before"], each["after"]) for each in told] == [
        ("ready", "paused"),
        ("paused", "ready"),
        ("ready", "canceled"),
    ]


@pytest.mark.django_db(transaction=True)
def test_a_control_that_is_rolled_back_sends_no_event() -> None:
    workflow = Told.start()
    with heard(*SIGNALS) as told, transaction.atomic():
        workflow.pause()
        workflow.cancel()
        transaction.set_rollback(True)

    assert told == []
    assert_state(workflow, "ready")


@pytest.mark.parametrize("inline_continuation", [False, True])
def test_each_check_of_preconditions_sends_its_verdict(inline_continuation: bool) -> None:
    workflow = Told.start()
    with heard(events.precondition_checked) as told:
        while workflow.state == "ready":
            run(workflow, inline_continuation=inline_continuation)

    assert [(each["execution"].step_name, each["verdict"]) for each in told] == [
        ("one", "proceed"),
        ("passed_over", "skipped"),
        ("two", "proceed"),
    ]


def test_deferred_and_canceled_are_verdicts() -> None:
    class Withdrawn(Free):
        gone = cancel_if(lambda workflow: True)

        @step
        def one(self) -> None:
            pass

    unknown = Told.start()
    Workflow.objects.filter(pk=unknown.pk).update(type="testapp.FromNewerCode")
    with heard(events.precondition_checked) as told:
        execute(active(unknown).pk)
        execute(active(Withdrawn.start()).pk)

    assert [each["verdict"] for each in told] == ["deferred", "canceled"]


def test_each_body_sends_its_duration_and_how_it_ended() -> None:
    class EndsInThreeWays(Free):
        @step
        def plainly(self) -> None:
            pass

        @step
        def by_a_word(self) -> None:
            if not raised:
                raised.append(True)
                self.pause()
            raise ValueError("no")

    raised: list[bool] = []
    workflow = EndsInThreeWays.start()
    with heard(events.step_performed) as told:
        run_next_step(workflow)
        run_next_step(workflow)
        workflow.resume()
        run_next_step(workflow, raise_errors=False)

    assert [type(each["error"]) for each in told] == [type(None), Pause, ValueError]
    assert all(each["seconds"] >= 0 for each in told)
    assert [each["execution"].step_name for each in told] == ["plainly", "by_a_word", "by_a_word"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("inline_continuation", [False, True])
def test_each_end_of_an_execution_sends_an_event_after_its_commit(inline_continuation: bool) -> None:
    workflow = Told.start()
    with heard(events.execution_finalized) as told:
        while workflow.state == "ready":
            run(workflow, inline_continuation=inline_continuation)

    ends = [(each["execution"].step_name, each["execution"].state, each["fenced"]) for each in told]
    assert ends == [
        ("one", "completed", False),
        ("passed_over", "skipped", False),
        ("two", "completed", False),
    ]
    assert not any(each["open"] for each in told)


def test_a_late_result_is_sent_as_fenced() -> None:
    workflow = Told.start()
    claimed = prepare.prepare(active(workflow).pk, using="default", runner=Runner())
    assert claimed is not None
    workflow.executions.update(attempt_token=None)

    with heard(events.execution_finalized) as told:
        executor.run(claimed, Runner())

    assert [each["fenced"] for each in told] == [True]


SIGNALS = [
    events.workflow_started,
    events.workflow_transitioned,
    events.precondition_checked,
    events.step_performed,
    events.execution_finalized,
]


@pytest.mark.parametrize("number", range(len(SIGNALS)))
@pytest.mark.parametrize("inline_continuation", [False, True])
def test_an_error_in_a_receiver_breaks_nothing(number: int, inline_continuation: bool) -> None:
    def receiver(**_: Any) -> None:
        raise LookupError("a receiver that fails")

    SIGNALS[number].connect(receiver)
    try:
        workflow = Told.start()
        while workflow.state == "ready":
            run(workflow, inline_continuation=inline_continuation)
    finally:
        SIGNALS[number].disconnect(receiver)

    assert_state(workflow, "finished")
    assert workflow.executions.filter(state="completed").count() == 2


def test_a_receiver_can_move_the_workflow() -> None:
    """Runs outside of every lock."""

    def receiver(workflow: Workflow, execution: Any, **_: Any) -> None:
        if execution.step_name == "one":
            Workflow.objects.get(pk=workflow.pk).pause(by="a receiver")

    workflow = Told.start()
    events.execution_finalized.connect(receiver)
    try:
        run(workflow)
    finally:
        events.execution_finalized.disconnect(receiver)

    assert_state(workflow, "paused")


@override_settings(GENEVA_DRIVE={"INLINE_CONTINUATION": False})
@pytest.mark.parametrize("act", [Told.start, lambda: Told.start().pause(), lambda: Told.start().cancel()])
def test_without_receivers_no_events_are_collected(act: Callable[[], Workflow]) -> None:
    pending = events.Pending()
    pending.add(events.workflow_started, act())

    with heard(events.workflow_started) as told:
        pending.send()

    assert told == []
