"""A signal and the step that waits for it, in both orders of arrival."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from geneva_drive import (
    InvalidStateError,
    PayloadError,
    PayloadTooLargeError,
    Signal,
    WorkflowNotOngoing,
    clock,
)
from geneva_drive.exceptions import InvalidSignalError
from geneva_drive.testing import (
    assert_state,
    assert_step,
    assert_waiting_for,
    run_due,
    run_next_step,
    run_to_end,
    travel,
)
from tests.lifecycle.signals.support import active, at_gate, notes, signal_rows
from tests.lifecycle.signals.workflows import (
    BadMatcher,
    Chatty,
    EitherWay,
    Enough,
    FailsOnce,
    LaterAndSignal,
    OnlyLooks,
    Parcel,
    Retried,
    Skippable,
)

pytestmark = pytest.mark.django_db


def test_a_step_without_its_signal_waits_with_no_job() -> None:
    workflow = at_gate(Parcel)

    execution = assert_waiting_for(workflow, "scanned")

    assert_state(workflow, "ready")
    assert workflow.next_step_name == "ship"
    assert execution.waiting_since is not None
    assert execution.wait_deadline is None
    assert run_due() == 0


def test_a_signal_wakes_the_step_that_waits_for_it() -> None:
    workflow = at_gate(Parcel)

    signal = workflow.signal("scanned", {"at": "gate 4"})

    execution = active(workflow)
    assert (execution.state, execution.signal_id) == ("scheduled", signal.pk)
    assert clock.utc(execution.scheduled_for) <= clock.now()
    assert signal_rows(workflow) == [("scanned", "claimed", 1, 0)]
    run_to_end(workflow)
    assert_state(workflow, "finished")
    assert notes(workflow) == [("pack", ""), ("ship", "{'at': 'gate 4'}"), ("tell", "None")]
    assert signal_rows(workflow) == [("scanned", "consumed", 1, 1)]


def test_an_early_signal_is_kept() -> None:
    workflow = Parcel.start()
    workflow.signal("scanned", {"at": "gate 4"})
    assert signal_rows(workflow) == [("scanned", "pending", 0, 0)]

    run_to_end(workflow)

    assert_state(workflow, "finished")
    assert notes(workflow) == [("pack", ""), ("ship", "{'at': 'gate 4'}"), ("tell", "None")]
    assert signal_rows(workflow) == [("scanned", "consumed", 1, 1)]


def test_a_signal_with_another_name_wakes_no_step_and_is_kept() -> None:
    workflow = at_gate(Parcel)

    workflow.signal("Scanned")

    assert_waiting_for(workflow, "scanned")
    assert signal_rows(workflow) == [("Scanned", "pending", 0, 0)]


def test_the_oldest_matching_signal_is_taken_first() -> None:
    workflow = FailsOnce.start()
    for payload in ("first", "second", "third"):
        workflow.signal("go", payload)

    run_to_end(workflow)

    assert notes(workflow) == [("work", "first"), ("more", "second")]
    assert [state for _, state, *_ in signal_rows(workflow)] == ["consumed", "consumed", "pending"]


@pytest.mark.parametrize("early", [True, False])
def test_a_condition_receives_workflow_and_payload(early: bool) -> None:
    workflow = Enough.start(metadata=50)
    if not early:
        run_to_end(workflow)
    workflow.signal("paid", {"amount": 10})
    workflow.signal("paid", {"amount": 50})
    workflow.signal("paid", {"amount": 90})

    run_to_end(workflow)

    assert notes(workflow) == [("ship", "50")]
    assert [state for _, state, *_ in signal_rows(workflow)] == ["pending", "consumed", "pending"]


def test_a_signal_behind_many_that_do_not_match_is_found() -> None:
    workflow = EitherWay.start()
    for _ in range(40):
        workflow.signal("refused")
    workflow.signal("paid")

    run_to_end(workflow)

    assert notes(workflow) == [("ship", "paid")]


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("name", ["paid", "waived"])
def test_a_matcher_object_can_accept_several_names(name: str, early: bool) -> None:
    workflow = EitherWay.start()
    if not early:
        run_to_end(workflow)
        assert_waiting_for(workflow, "paid or waived")
    workflow.signal("refused")
    workflow.signal(name)

    run_to_end(workflow)

    assert notes(workflow) == [("ship", name)]


def test_wait_and_wait_for_compose() -> None:
    workflow = LaterAndSignal.start()
    workflow.signal("go", "early")
    assert run_due() == 0, "the signal is there, and the time has not come"

    with travel(timedelta(hours=2)):
        assert run_due() == 1

    assert notes(workflow) == [("work", "early")]


def test_the_next_attempt_receives_the_same_signal() -> None:
    workflow = at_gate(Retried)
    signal = workflow.signal("go")
    workflow.signal("go")

    run_to_end(workflow)

    assert notes(workflow) == [("work", str(signal.pk))] * 3
    assert signal_rows(workflow) == [("go", "consumed", 1, 1), ("go", "pending", 0, 0)]


def test_a_failed_step_keeps_its_signal_for_the_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailsOnce, "failing", {"a"})
    workflow = at_gate(FailsOnce)
    workflow.signal("go", "a")
    workflow.signal("go", "b")
    run_to_end(workflow, raise_errors=False)
    assert_state(workflow, "paused")
    assert [state for _, state, *_ in signal_rows(workflow)] == ["claimed", "pending"]

    monkeypatch.setattr(FailsOnce, "failing", set())
    workflow.resume()
    run_to_end(workflow)

    assert notes(workflow) == [("work", "a"), ("work", "a"), ("more", "b")]
    assert signal_rows(workflow) == [("go", "consumed", 2, 1), ("go", "consumed", 1, 1)]


@pytest.mark.parametrize("retried", [False, True], ids=["pointed at", "scheduled again"])
def test_an_operators_skip_of_a_failed_step_consumes_its_signal(
    monkeypatch: pytest.MonkeyPatch, retried: bool
) -> None:
    monkeypatch.setattr(FailsOnce, "failing", {"a"})
    workflow = at_gate(FailsOnce)
    workflow.signal("go", "a")
    run_to_end(workflow, raise_errors=False)
    if retried:
        workflow.resume()

    workflow.skip()

    assert signal_rows(workflow) == [("go", "consumed", 1, 1)]
    run_to_end(workflow)
    assert_waiting_for(workflow, "go")
    assert workflow.next_step_name == "more"


def test_a_canceled_workflow_leaves_its_signal_claimed() -> None:
    workflow = at_gate(Parcel)
    workflow.signal("scanned")

    workflow.cancel()

    assert_step(workflow, "ship", "canceled", "canceled")
    assert signal_rows(workflow) == [("scanned", "claimed", 1, 0)]


def test_a_condition_that_skips_the_step_consumes_its_signal() -> None:
    workflow = at_gate(Skippable)
    workflow.signal("go")
    workflow.metadata = True
    workflow.save()

    run_next_step(workflow)

    assert_step(workflow, "work", "skipped", "skipped")
    assert signal_rows(workflow) == [("go", "consumed", 1, 1)]


def test_a_condition_that_skips_the_step_before_it_waits_leaves_pending_signals() -> None:
    workflow = Skippable.start(metadata=True)
    workflow.signal("go", "for more")

    run_to_end(workflow)

    assert notes(workflow) == [("more", "for more")]


def test_skip_moves_a_workflow_past_a_waiting_step() -> None:
    workflow = at_gate(Parcel)

    workflow.skip(by="ann")

    assert_step(workflow, "ship", "skipped", "skipped")
    run_to_end(workflow)
    assert_state(workflow, "finished")
    assert notes(workflow) == [("pack", ""), ("tell", "None")]


def test_an_error_in_a_matcher_reaches_the_sender_and_nothing_is_written() -> None:
    workflow = at_gate(BadMatcher)

    with transaction.atomic(), pytest.raises(TypeError):
        workflow.signal("go", 5)

    assert signal_rows(workflow) == []
    assert_waiting_for(workflow, "go")


def test_a_pending_signal_whose_matcher_raises_blocks_the_step_until_it_is_skipped() -> None:
    workflow = BadMatcher.start()
    workflow.signal("go", 5)

    run_to_end(workflow, raise_errors=False)

    assert_state(workflow, "paused")
    assert "TypeError" in str(assert_step(workflow, "work", "failed", "failed").error_class)
    workflow.resume()
    run_to_end(workflow, raise_errors=False)
    assert_state(workflow, "paused")
    workflow.skip()
    run_to_end(workflow)
    assert_state(workflow, "finished")
    assert notes(workflow) == [("after", "")]


@pytest.mark.parametrize(
    "attempt", [["signal", "other"], ["cancel"], ["pause"], ["skip"], ["finish"], ["reattempt"]]
)
def test_a_matcher_cannot_write(attempt: list[str]) -> None:
    workflow = at_gate(OnlyLooks)

    with pytest.raises(InvalidStateError):
        workflow.signal("go", attempt)

    assert_state(workflow, "ready")
    assert signal_rows(workflow) == []


# -- idempotency


def test_a_repeated_key_returns_the_first_row_and_changes_nothing() -> None:
    workflow = at_gate(Parcel)
    first = workflow.signal("scanned", 1, idempotency_key="evt-1")
    run_to_end(workflow)

    again = workflow.signal("scanned", 2, idempotency_key="evt-1")

    assert (first.duplicate, again.duplicate) == (False, True)
    assert (again.pk, again.payload) == (first.pk, 1)
    assert signal_rows(workflow) == [("scanned", "consumed", 1, 1)]


@pytest.mark.parametrize(
    ("name", "key"), [("scanned", "EVT-1"), ("scanned", "evt-1 "), ("Scanned", "evt-1"), ("scanned", None)]
)
def test_keys_and_names_are_compared_exactly(name: str, key: str | None) -> None:
    workflow = Parcel.start()
    workflow.signal("scanned", idempotency_key="evt-1")

    assert not workflow.signal(name, idempotency_key=key).duplicate
    assert len(signal_rows(workflow)) == 2


def test_signals_without_a_key_are_all_kept() -> None:
    workflow = Parcel.start()

    assert [workflow.signal("scanned").duplicate for _ in range(3)] == [False] * 3


def test_the_same_key_can_be_used_for_another_workflow() -> None:
    Parcel.start().signal("scanned", idempotency_key="evt-1")

    assert not Parcel.start().signal("scanned", idempotency_key="evt-1").duplicate


@pytest.mark.parametrize("end", ["finished", "canceled"])
def test_an_ended_workflow_refuses_new_signals_but_recognizes_known_keys(end: str) -> None:
    workflow = at_gate(Parcel)
    first = workflow.signal("scanned", idempotency_key="evt-1")
    if end == "finished":
        run_to_end(workflow)
    else:
        workflow.cancel()

    again = workflow.signal("scanned", idempotency_key="evt-1")
    assert (again.pk, again.duplicate) == (first.pk, True)
    for key in (None, "evt-2"):
        with pytest.raises(WorkflowNotOngoing, match=end):
            workflow.signal("scanned", idempotency_key=key)
    assert len(signal_rows(workflow)) == 1


def test_a_deleted_workflow_cannot_be_signaled() -> None:
    workflow = Parcel.start()
    stale = Parcel.objects.get(pk=workflow.pk)
    workflow.delete()

    with pytest.raises(WorkflowNotOngoing, match="gone"):
        stale.signal("scanned")


# -- refused declarations


@pytest.mark.parametrize("name", ["", "  ", "x" * 151, "a\0b", "\ud800", None, 5])
def test_an_invalid_name_is_refused(name: Any) -> None:
    workflow = Parcel.start()

    with pytest.raises(InvalidSignalError):
        workflow.signal(name)
    assert signal_rows(workflow) == []


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "a\0b", "\udfff", 5])
def test_an_invalid_key_is_refused(key: Any) -> None:
    workflow = Parcel.start()

    with pytest.raises(InvalidSignalError):
        workflow.signal("scanned", idempotency_key=key)
    assert signal_rows(workflow) == []


@pytest.mark.parametrize("name", ["x" * 150, "заказ оплачен 📦"])
def test_names_and_keys_of_the_maximum_length_are_stored(name: str) -> None:
    workflow = Parcel.start()

    signal = workflow.signal(name, idempotency_key=(name * 255)[:255])

    stored = Signal.objects.get(pk=signal.pk)
    assert (stored.name, stored.idempotency_key) == (name, (name * 255)[:255])


def test_a_payload_that_cannot_be_stored_is_refused_with_the_path_to_the_value() -> None:
    workflow = at_gate(Parcel)

    with pytest.raises(PayloadError, match=r"payload\['items'\]\[1\]"):
        workflow.signal("scanned", {"items": [1, float("nan")]})

    assert signal_rows(workflow) == []
    assert_waiting_for(workflow, "scanned")


def test_a_payload_that_is_too_large_is_refused(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"MAX_PAYLOAD_BYTES": 100}
    workflow = Parcel.start()
    workflow.signal("scanned", "x" * 98)

    with pytest.raises(PayloadTooLargeError, match="101 bytes"):
        workflow.signal("scanned", "x" * 99)
    assert len(signal_rows(workflow)) == 1


def test_a_signal_cannot_be_saved_directly() -> None:
    signal = Parcel.start().signal("scanned")
    signal.state = "consumed"

    with pytest.raises(InvalidStateError):
        signal.save()
    assert Signal.objects.get(pk=signal.pk).state == "pending"


def test_a_step_can_signal_its_own_workflow() -> None:
    workflow = Chatty.start()

    run_to_end(workflow)

    assert notes(workflow) == [("second", "from first")]


def test_the_received_signal_knows_its_workflow() -> None:
    workflow = Chatty.start()
    run_to_end(workflow)

    assert Signal.objects.get(workflow=workflow).workflow == workflow


def test_received_signal_is_available_only_in_steps() -> None:
    with pytest.raises(InvalidStateError):
        Parcel.start().received_signal  # noqa: B018 - looking is what is refused
