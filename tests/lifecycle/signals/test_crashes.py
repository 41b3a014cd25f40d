"""Signals of steps whose process dies, or whose result arrives too late."""

from __future__ import annotations

from datetime import timedelta

import pytest

from geneva_drive import Workflow
from geneva_drive.execution import executor, prepare, recovery
from geneva_drive.execution.runner import Runner
from geneva_drive.housekeeping import recover
from geneva_drive.testing import assert_state, assert_step, crash_at, run_next_step, run_to_end, travel
from tests.lifecycle.signals.support import active, at_gate, notes, signal_rows
from tests.lifecycle.signals.workflows import AtomicStep, Parcel

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("point", ["prepared", "performed"])
def test_a_step_retried_after_a_crash_receives_the_same_signal(point: str) -> None:
    workflow = at_gate(Parcel)
    workflow.signal("scanned", 1)
    workflow.signal("scanned", 2)

    with crash_at(point):
        run_next_step(workflow)
    with travel(timedelta(hours=2)):
        assert recover("default").recovered == 1
        assert active(workflow).signal_id is not None
        run_to_end(workflow)

    assert_state(workflow, "finished")
    assert [note for name, note in notes(workflow) if name == "ship"] == (
        ["1"] if point == "prepared" else ["1", "1"]
    )
    assert signal_rows(workflow) == [("scanned", "consumed", 1, 1), ("scanned", "pending", 0, 0)]


def test_a_released_execution_keeps_its_signal() -> None:
    workflow = at_gate(Parcel)
    signal = workflow.signal("scanned", 1)
    claimed = prepare.prepare(active(workflow).pk, using="default", runner=Runner())
    assert claimed is not None

    assert recovery.release(claimed)

    assert (active(workflow).state, active(workflow).signal_id) == ("scheduled", signal.pk)
    run_to_end(workflow)
    assert signal_rows(workflow) == [("scanned", "consumed", 1, 1)]


def test_a_fenced_result_consumes_no_signal() -> None:
    workflow = at_gate(Parcel)
    workflow.signal("scanned", 1)
    runner = Runner()
    claimed = prepare.prepare(active(workflow).pk, using="default", runner=runner)
    assert claimed is not None
    Workflow.objects.get(pk=workflow.pk).cancel()

    executor.run(claimed, runner)

    assert_state(workflow, "canceled")
    assert_step(workflow, "ship", "canceled", "canceled")
    assert signal_rows(workflow) == [("scanned", "claimed", 1, 0)]


def test_an_atomic_step_that_is_rolled_back_consumes_no_signal() -> None:
    workflow = at_gate(AtomicStep)
    workflow.signal("go", "fail")
    run_to_end(workflow, raise_errors=False)
    assert_state(workflow, "paused")
    assert notes(workflow) == []
    assert signal_rows(workflow) == [("go", "claimed", 1, 0)]

    workflow.skip()

    assert_state(workflow, "finished")
    assert signal_rows(workflow) == [("go", "consumed", 1, 1)]


def test_an_atomic_step_that_succeeds_consumes_its_signal() -> None:
    workflow = at_gate(AtomicStep)
    workflow.signal("go", "well")

    run_to_end(workflow)

    assert notes(workflow) == [("work", "well")]
    assert signal_rows(workflow) == [("go", "consumed", 1, 1)]
