"""Steps of dead processes are recovered once, and nothing else is touched."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from geneva_drive import clock
from geneva_drive.execution import recovery
from geneva_drive.execution.finalize import finalize
from geneva_drive.execution.perform import StepResult
from geneva_drive.execution.runner import Runner
from geneva_drive.housekeeping import Counts, dead_processes, recover
from geneva_drive.lifecycle.unit_of_work import UnitOfWork
from geneva_drive.models import Process, StepExecution, Workflow
from tests.housekeeping.support import DAY, KeptPausing, KeptTwo, at_once, in_hand, process
from tests.worker.support import active, history

pytestmark = pytest.mark.django_db


def test_a_dead_process_is_recovered_and_its_row_deleted() -> None:
    workflow, dead = KeptTwo.start(), process(beat=DAY)
    in_hand(workflow, dead)

    counts = recover("default")

    assert (counts.recovered, counts.processes) == (1, 1)
    assert history(workflow) == [("one", "failed", "recovered"), ("one", "scheduled", None)]
    ended = workflow.executions.get(outcome="recovered")
    assert ended.finished_at is not None
    assert str(dead.pk) in (ended.error_message or "")
    assert active(workflow).crashes == 1
    workflow.refresh_from_db()
    assert (workflow.state, workflow.next_step_name) == ("ready", "one")
    assert not Process.objects.exists()
    assert recover("default") == Counts()


def test_a_live_process_is_left_alone_however_long_its_step_takes() -> None:
    workflow, alive = KeptTwo.start(), process()
    in_hand(workflow, alive, since=100 * DAY)
    assert recover("default") == Counts()
    assert active(workflow).state == "in_progress"
    assert Process.objects.count() == 1


def test_a_process_without_a_row_is_dead() -> None:
    workflow, gone = KeptTwo.start(), process()
    in_hand(workflow, gone)
    Process.objects.all()._raw_delete("default")
    assert recover("default").recovered == 1


def test_a_step_without_a_process_is_stuck_after_the_threshold(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"STUCK_AFTER": timedelta(hours=1)}
    fresh, stuck = KeptTwo.start(), KeptTwo.start()
    in_hand(fresh, None, since=timedelta(minutes=59))
    in_hand(stuck, None, since=timedelta(minutes=61))
    assert recover("default").recovered == 1
    assert active(fresh).state == "in_progress"
    assert active(stuck).state == "scheduled"


def test_an_idle_dead_process_is_deleted() -> None:
    process(beat=DAY)
    alive = process()
    assert recover("default") == Counts(processes=1)
    assert list(Process.objects.all()) == [alive]


def test_the_last_allowed_crash_pauses(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"MAX_CRASHES": 3}
    workflow = KeptTwo.start()
    for crashes in (1, 2):
        in_hand(workflow, process(beat=DAY))
        recover("default")
        assert active(workflow).crashes == crashes
    in_hand(workflow, process(beat=DAY))
    recover("default")
    workflow.refresh_from_db()
    assert (workflow.state, workflow.next_step_name) == ("paused", "one")
    assert [state for _, state, _ in history(workflow)] == ["failed"] * 3


def test_a_crash_between_a_hand_off_and_the_body_does_not_count() -> None:
    workflow = KeptTwo.start()
    in_hand(workflow, process(beat=DAY), handed_off=True, crashes=2)
    recover("default")
    assert active(workflow).crashes == 2
    workflow.refresh_from_db()
    assert workflow.state == "ready"


def test_a_success_resets_the_count() -> None:
    workflow = KeptTwo.start()
    claimed = in_hand(workflow, process(), crashes=2)
    finalize(claimed, StepResult(), Runner(inline_continuation=False))
    assert active(workflow).crashes == 0


@pytest.mark.parametrize(
    ("action", "state"), [("reattempt", "ready"), ("pause", "paused"), ("cancel", "canceled")]
)
def test_the_setting_decides_the_recovery_action(settings: Any, action: str, state: str) -> None:
    settings.GENEVA_DRIVE = {"RECOVERY_ACTION": action}
    workflow = KeptTwo.start()
    in_hand(workflow, process(beat=DAY))
    recover("default")
    workflow.refresh_from_db()
    assert workflow.state == state


def test_a_steps_on_crash_overrides_the_setting(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"RECOVERY_ACTION": "cancel"}
    workflow = KeptPausing.start()
    in_hand(workflow, process(beat=DAY))
    recover("default")
    workflow.refresh_from_db()
    assert workflow.state == "paused"


def test_a_requested_pause_is_honoured() -> None:
    workflow = KeptTwo.start()
    in_hand(workflow, process(beat=DAY))
    workflow.pause()
    recover("default")
    workflow.refresh_from_db()
    assert (workflow.state, workflow.pause_requested_at) == ("paused", None)
    assert (active(workflow).state, active(workflow).on_hold) == ("scheduled", True)


def test_a_canceled_execution_is_ended_without_a_successor() -> None:
    workflow = KeptTwo.start()
    in_hand(workflow, process(beat=DAY))
    workflow.cancel()
    assert recover("default").recovered == 1
    assert history(workflow) == [("one", "canceled", "canceled")]
    assert workflow.executions.get().finished_at is not None
    workflow.refresh_from_db()
    assert workflow.state == "canceled"


@pytest.mark.parametrize("unknown", ["class", "step"])
def test_an_undeclared_step_is_left_for_the_grace_and_then_pauses(settings: Any, unknown: str) -> None:
    settings.GENEVA_DRIVE = {"UNDEFINED_STEP_GRACE": timedelta(minutes=5)}
    workflow = KeptTwo.start()
    in_hand(workflow, process(beat=DAY))
    if unknown == "class":
        Workflow.objects.filter(pk=workflow.pk).update(type="workshop.Gone")
    else:
        StepExecution.objects.filter(workflow_id=workflow.pk).update(step_name="gone")

    assert recover("default") == Counts()
    row = StepExecution.objects.get(workflow_id=workflow.pk)
    assert row.state == "in_progress"
    assert row.deferred_since is not None
    assert recover("default") == Counts()

    StepExecution.objects.filter(pk=row.pk).update(
        deferred_since=clock.local(clock.now() - timedelta(minutes=6))
    )
    assert recover("default").recovered == 1
    row.refresh_from_db()
    assert (row.state, row.outcome) == ("failed", "recovered")
    assert Workflow.objects.get(pk=workflow.pk).state == "paused"


def test_a_declared_step_is_recovered_within_the_grace() -> None:
    """Given that old code has met it, new code recovers it at once."""
    workflow = KeptTwo.start()
    in_hand(workflow, process(beat=DAY), deferred_since=clock.local(clock.now()))
    assert recover("default").recovered == 1
    assert active(workflow).step_name == "one"


def test_a_stale_list_does_no_harm() -> None:
    """Given a row that was started again, or a process that beats again, since the list was made: untouched."""
    workflow, owner = KeptTwo.start(), process(beat=DAY)
    claimed = in_hand(workflow, owner)
    again, revived = KeptTwo.start(), process(beat=DAY)
    in_hand(again, revived)
    listed = [
        (row.pk, row.workflow_id, token)
        for row, token in ((claimed.execution, uuid4()), (active(again), active(again).attempt_token))
    ]
    Process.objects.filter(pk=revived.pk).update(heartbeat_at=clock.local(clock.now()))
    for pk, workflow_id, token in listed:
        assert not recovery.recover_one(
            pk,
            workflow_id,
            token,
            using="default",
            why="an old list",
            still_dead=lambda: dead_processes._is_dead("default", revived.pk),
        )
    assert {active(workflow).state, active(again).state} == {"in_progress"}


def test_a_late_result_is_fenced() -> None:
    workflow = KeptTwo.start()
    claimed = in_hand(workflow, process(beat=DAY))
    recover("default")
    before = history(workflow)
    assert finalize(claimed, StepResult(), Runner()) is None
    assert history(workflow) == before


def test_one_failing_recovery_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a fault of our own in the middle of recovering one, the others are recovered."""
    broken, good = KeptTwo.start(), KeptTwo.start()
    dead = process(beat=DAY)
    in_hand(broken, dead, since=2 * DAY)
    in_hand(good, dead)
    apply = getattr(recovery, "apply_decision")  # noqa: B009 - not exported, and replaced here

    def fails(unit: UnitOfWork, decision: Any) -> Any:
        if unit.workflow.pk == broken.pk:
            raise RuntimeError("nobody thought of this")
        return apply(unit, decision)

    monkeypatch.setattr(recovery, "apply_decision", fails)
    assert recover("default").recovered == 1
    assert active(good).state == "scheduled"
    assert active(broken).state == "in_progress"
    assert any("could not be recovered" in record.getMessage() for record in caplog.records)


@pytest.mark.django_db(transaction=True)
def test_two_concurrent_recoveries_and_a_late_result() -> None:
    """Given all three at the same rows, each row gets one final state and one successor."""
    dead = process(beat=DAY)
    performances = [in_hand(KeptTwo.start(), dead) for _ in range(12)]
    barrier = threading.Barrier(3)
    recovered: list[int] = []

    def maintenance() -> None:
        barrier.wait()
        recovered.append(recover("default").recovered)

    def finish() -> None:
        barrier.wait()
        for claimed in performances:
            finalize(claimed, StepResult(), Runner(inline_continuation=False))

    at_once(maintenance, maintenance, finish)

    for claimed in performances:
        rows = history(claimed.workflow)
        assert rows in (
            [("one", "failed", "recovered"), ("one", "scheduled", None)],
            [("one", "completed", "success"), ("two", "scheduled", None)],
        )
    assert sum(recovered) == StepExecution.objects.filter(outcome="recovered").count()
    assert not Process.objects.exists()


@pytest.mark.parametrize("count", [1, 30])
def test_recovery_runs_no_query_per_live_row(count: int) -> None:
    """Given many rows of live processes, the number of queries depends on the processes alone."""
    alive = process()
    for _ in range(count):
        in_hand(KeptTwo.start(), alive, since=timedelta(0))
    with CaptureQueriesContext(connection) as captured:
        recover("default")
    assert len(captured) <= 7
