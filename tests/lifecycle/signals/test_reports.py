"""What operators see of workflows that wait."""

from __future__ import annotations

from datetime import timedelta

import pytest

from geneva_drive import clock
from geneva_drive.housekeeping import clean_up
from geneva_drive.models import Signal, StepExecution, Workflow
from geneva_drive.reports.in_flight import waiting
from geneva_drive.testing import assert_waiting_for, run_next_step, run_to_end, travel
from tests.lifecycle.signals.support import active, at_gate
from tests.lifecycle.signals.workflows import EitherWay, Parcel

pytestmark = pytest.mark.django_db


def test_waiting_reports_what_steps_wait_for_since_when_and_how_many_wait_too_long() -> None:
    with travel(timedelta(days=-10)):
        oldest = at_gate(Parcel)
    with travel(timedelta(days=-1)):
        at_gate(Parcel)
        at_gate(EitherWay)
    at_gate(Parcel).cancel()
    at_gate(Parcel).signal("scanned")

    parcels, either = waiting()

    since = active(oldest).waiting_since
    assert since is not None
    assert (parcels.type, parcels.step, parcels.waits_for) == ("signals.Parcel", "ship", "scanned")
    assert (parcels.workflows, parcels.too_long, parcels.since) == (2, 1, clock.utc(since))
    assert (either.waits_for, either.workflows, either.too_long) == ("paid or waived", 1, 0)
    assert str(parcels) == (
        f"signals.Parcel, ship: 2 waiting for scanned since {parcels.since:%Y-%m-%d %H:%M} UTC, 1 of them too long"
    )


def test_assert_waiting_for_reports_the_actual_state() -> None:
    workflow = Parcel.start()
    with pytest.raises(AssertionError, match="waits for no signal"):
        assert_waiting_for(workflow, "scanned")
    run_to_end(workflow)
    with pytest.raises(AssertionError, match="waits for scanned at its step ship, not for paid"):
        assert_waiting_for(workflow, "paid")
    assert assert_waiting_for(workflow, "scanned").step_name == "ship"


def test_the_cleanup_deletes_signals_with_their_workflow() -> None:
    ended, going = at_gate(Parcel), at_gate(Parcel)
    for workflow in (ended, going):
        workflow.signal("scanned")
        workflow.signal("other")
    run_to_end(ended)

    with travel(timedelta(days=31)):
        counts = clean_up("default")

    assert (counts.workflows, counts.executions, counts.signals) == (1, 3, 2)
    assert set(Signal.objects.values_list("workflow_id", flat=True)) == {going.pk}


def test_deleting_a_workflow_deletes_its_signals_and_executions() -> None:
    workflow = at_gate(Parcel)
    workflow.signal("scanned")
    run_next_step(workflow)

    Workflow.objects.get(pk=workflow.pk).delete()

    assert not Signal.objects.exists()
    assert not StepExecution.objects.exists()
