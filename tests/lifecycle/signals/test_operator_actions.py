"""Pause, resume, resume_at and cancel of a waiting workflow."""

from __future__ import annotations

import pytest

from geneva_drive.testing import assert_state, assert_step, assert_waiting_for, run_due, run_to_end
from tests.lifecycle.signals.support import active, at_gate, notes, signal_rows
from tests.lifecycle.signals.workflows import BadMatcher, Parcel

pytestmark = pytest.mark.django_db


def test_a_paused_workflow_keeps_signals_and_resume_delivers_them() -> None:
    workflow = at_gate(Parcel)
    workflow.pause()
    workflow.signal("scanned", "while paused")
    assert signal_rows(workflow) == [("scanned", "pending", 0, 0)]
    assert active(workflow).state == "waiting"
    assert active(workflow).on_hold

    workflow.resume()

    execution = active(workflow)
    assert (execution.state, execution.on_hold) == ("scheduled", False)
    assert signal_rows(workflow) == [("scanned", "claimed", 1, 0)]
    run_to_end(workflow)
    assert ("ship", "while paused") in notes(workflow)


def test_resume_without_a_signal_continues_to_wait() -> None:
    workflow = at_gate(Parcel)
    since = active(workflow).waiting_since
    workflow.pause()

    workflow.resume()

    execution = assert_waiting_for(workflow, "scanned")
    assert not execution.on_hold
    assert execution.waiting_since == since
    workflow.signal("scanned")
    run_to_end(workflow)
    assert_state(workflow, "finished")


def test_a_paused_workflow_that_was_already_woken_continues_at_its_step() -> None:
    workflow = at_gate(Parcel)
    workflow.signal("scanned", 1)
    workflow.pause()
    assert run_due() == 0

    workflow.resume()
    run_to_end(workflow)

    assert ("ship", "1") in notes(workflow)
    assert signal_rows(workflow) == [("scanned", "consumed", 1, 1)]


def test_resume_at_leaves_the_waiting_step() -> None:
    workflow = at_gate(Parcel)
    workflow.pause()

    workflow.resume_at("tell")

    assert_step(workflow, "ship", "canceled", "canceled")
    run_to_end(workflow)
    assert_state(workflow, "finished")
    assert notes(workflow) == [("pack", ""), ("tell", "None")]


def test_resume_at_the_same_step_reuses_its_claimed_signal() -> None:
    workflow = at_gate(Parcel)
    workflow.signal("scanned", 1)
    workflow.pause()

    workflow.resume_at("ship")
    run_to_end(workflow)

    assert_state(workflow, "finished")
    assert signal_rows(workflow) == [("scanned", "consumed", 2, 1)]


def test_skip_while_paused_skips_the_waiting_step() -> None:
    workflow = at_gate(Parcel)
    workflow.pause()

    workflow.skip()

    assert_step(workflow, "ship", "skipped", "skipped")
    assert_state(workflow, "ready")
    run_to_end(workflow)
    assert_state(workflow, "finished")


def test_skip_consumes_an_attached_signal() -> None:
    workflow = at_gate(Parcel)
    workflow.signal("scanned")

    workflow.skip()

    assert signal_rows(workflow) == [("scanned", "consumed", 1, 1)]


@pytest.mark.parametrize("paused", [False, True])
def test_cancel_ends_a_waiting_workflow(paused: bool) -> None:
    workflow = at_gate(Parcel)
    if paused:
        workflow.pause()

    workflow.cancel()

    assert_state(workflow, "canceled")
    assert_step(workflow, "ship", "canceled", "canceled")


def test_resume_leaves_an_error_in_a_matcher_to_prepare() -> None:
    workflow = at_gate(BadMatcher)
    workflow.pause()
    workflow.signal("go", 5)

    workflow.resume()

    assert active(workflow).state == "scheduled"
    run_to_end(workflow, raise_errors=False)
    assert_state(workflow, "paused")
    assert "TypeError" in str(assert_step(workflow, "work", "failed", "failed").error_class)
