"""Signals that do not arrive in time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from geneva_drive import SignalWaitTimeout, StepExecution, Workflow, clock
from geneva_drive.definition.collection import StepDefinition
from geneva_drive.execution.signal_timeouts import expire_due
from geneva_drive.housekeeping import housekeep
from geneva_drive.lifecycle.unit_of_work import UnitOfWork
from geneva_drive.testing import (
    assert_state,
    assert_step,
    assert_waiting_for,
    run_due,
    run_next_step,
    run_to_end,
    travel,
)
from geneva_drive.worker import Worker
from tests.lifecycle.signals.support import active, at_gate, notes, signal_rows
from tests.lifecycle.signals.workflows import (
    Parcel,
    TimesOut,
    TimesOutByPolicy,
    TimesOutCancel,
    TimesOutPause,
    TimesOutSkip,
    TimesOutToHandler,
)

DAY = timedelta(days=1)
LATE = timedelta(days=1, minutes=1)
ERROR = "geneva_drive.exceptions.SignalWaitTimeout"


def age(workflow: Workflow, by: timedelta) -> None:
    """Move the start of the wait back, for processes that cannot use travel()."""
    execution = active(workflow)
    assert execution.waiting_since is not None
    assert execution.wait_deadline is not None
    StepExecution.objects.filter(pk=execution.pk).update(
        waiting_since=execution.waiting_since - by, wait_deadline=execution.wait_deadline - by
    )


@pytest.mark.django_db
def test_the_deadline_counts_from_when_the_step_started_to_wait() -> None:
    workflow = at_gate(TimesOutSkip)

    execution = assert_waiting_for(workflow, "go")

    assert execution.waiting_since is not None
    assert execution.wait_deadline == execution.waiting_since + DAY


@pytest.mark.django_db
def test_nothing_happens_before_the_deadline() -> None:
    workflow = at_gate(TimesOutSkip)

    with travel(DAY - timedelta(minutes=1)):
        assert expire_due("default") == 0
        assert_waiting_for(workflow, "go")


@pytest.mark.django_db
def test_on_timeout_skip_continues_with_the_next_step() -> None:
    workflow = at_gate(TimesOutSkip)

    with travel(LATE):
        run_due()

    assert_state(workflow, "finished")
    assert assert_step(workflow, "work", "skipped", "skipped").error_class == ERROR
    assert notes(workflow) == [("after", "")]


@pytest.mark.django_db
def test_on_timeout_cancel_ends_the_workflow() -> None:
    workflow = at_gate(TimesOutCancel)

    with travel(LATE):
        run_due()

    assert_state(workflow, "canceled")
    execution = assert_step(workflow, "work", "failed", "canceled")
    assert execution.error_class == ERROR
    assert execution.finished_at is not None
    assert "'go'" in str(execution.error_message)


@pytest.mark.django_db
def test_on_timeout_pause_pauses_and_resume_waits_again() -> None:
    workflow = at_gate(TimesOutPause)

    with travel(LATE):
        run_due()
        assert_state(workflow, "paused")
        assert assert_step(workflow, "work", "failed", "failed").error_class == ERROR
        workflow.resume()
        run_due()
        execution = assert_waiting_for(workflow, "go")
        assert execution.wait_deadline is not None
        assert clock.utc(execution.wait_deadline) > clock.now() + DAY / 2
        workflow.signal("go", "at last")
        run_to_end(workflow)

    assert notes(workflow) == [("work", "at last")]


@pytest.mark.django_db
def test_without_on_timeout_the_step_fails_by_its_policies() -> None:
    workflow = at_gate(TimesOut)

    with travel(LATE), pytest.raises(SignalWaitTimeout, match="waited for 'go'"):
        run_due()

    assert_state(workflow, "paused")
    assert assert_step(workflow, "work", "failed", "failed").error_class == ERROR


@pytest.mark.django_db
def test_a_policy_can_let_the_step_wait_again() -> None:
    workflow = at_gate(TimesOutByPolicy)

    with travel(LATE):
        run_due()
        execution = assert_waiting_for(workflow, "go")
        assert execution.wait_deadline is not None
        assert clock.utc(execution.wait_deadline) > clock.now() + DAY / 2
        assert workflow.executions.filter(outcome="reattempted", error_class=ERROR).count() == 1
        workflow.signal("go", "the second time")
        run_to_end(workflow)

    assert notes(workflow) == [("work", "the second time")]


@pytest.mark.django_db
def test_a_policys_reattempts_after_timeouts_are_limited() -> None:
    workflow = at_gate(TimesOutByPolicy)

    for days in (1, 2, 3):
        with travel(days * LATE):
            run_due()

    assert_state(workflow, "canceled")
    assert assert_step(workflow, "work", "failed", "canceled").error_class == ERROR
    assert workflow.executions.count() == 3


@pytest.mark.django_db
def test_a_handler_can_decide() -> None:
    workflow = at_gate(TimesOutToHandler)

    with travel(LATE):
        run_due()

    assert_state(workflow, "finished")
    assert_step(workflow, "work", "skipped", "skipped")
    assert notes(workflow) == [("handler", "None"), ("after", "")]


@pytest.mark.django_db
@pytest.mark.parametrize("cls", [TimesOutSkip, TimesOutCancel, TimesOutPause, TimesOut])
def test_a_signal_before_the_timeout_is_delivered(cls: type[Workflow]) -> None:
    workflow = at_gate(cls)

    with travel(LATE):
        # The deadline has passed but has not been handled.
        workflow.signal("go", "late")
        assert expire_due("default") == 0
        run_to_end(workflow)

    assert_state(workflow, "finished")
    assert notes(workflow)[0][0] == "work"


@pytest.mark.django_db
def test_a_signal_after_the_deadline_but_before_the_timeout_is_handled_is_delivered() -> None:
    workflow = at_gate(TimesOut)

    with travel(LATE):
        assert expire_due("default") == 1
        workflow.signal("go", "just in time")
        run_to_end(workflow)

    assert notes(workflow) == [("work", "just in time")]


@pytest.mark.django_db
def test_a_signal_after_the_timeout_is_kept_for_another_step() -> None:
    workflow = at_gate(TimesOutSkip)

    with travel(LATE):
        assert expire_due("default") == 1
        workflow.signal("go")
        run_to_end(workflow)

    assert_state(workflow, "finished")
    assert signal_rows(workflow) == [("go", "pending", 0, 0)]


@pytest.mark.django_db
def test_a_deadline_keeps_running_while_paused_and_does_not_expire() -> None:
    workflow = at_gate(TimesOutCancel)
    workflow.pause()

    with travel(LATE):
        assert expire_due("default") == 0
        assert_state(workflow, "paused")
        workflow.resume()
        assert_state(workflow, "ready")
        assert expire_due("default") == 1
        assert_state(workflow, "canceled")


@pytest.mark.django_db
def test_resume_delivers_a_signal_even_after_the_deadline() -> None:
    workflow = at_gate(TimesOutCancel)
    workflow.pause()
    workflow.signal("go")

    with travel(LATE):
        workflow.resume()
        assert expire_due("default") == 0
        run_to_end(workflow)

    assert_state(workflow, "finished")


@pytest.mark.django_db
def test_housekeeping_handles_deadlines_too() -> None:
    workflow = at_gate(TimesOutSkip)

    with travel(LATE):
        assert housekeep().expired == 1

    assert_step(workflow, "work", "skipped", "skipped")
    assert_state(workflow, "ready")
    assert workflow.next_step_name == "after"


@pytest.mark.django_db
def test_many_deadlines_are_handled_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geneva_drive.execution.signal_timeouts._PAGE", 2)
    workflows = [at_gate(TimesOutCancel) for _ in range(5)]
    # All at the same moment, so that pages are separated by key.
    same = active(workflows[0]).wait_deadline
    StepExecution.objects.filter(state="waiting").update(wait_deadline=same)

    with travel(LATE):
        assert expire_due("default") == 5

    for workflow in workflows:
        assert_state(workflow, "canceled")


@pytest.mark.django_db
def test_a_deadline_that_cannot_be_handled_does_not_block_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = at_gate(TimesOutCancel), at_gate(TimesOutCancel)
    from geneva_drive.execution import signal_timeouts

    real = signal_timeouts.timed_out

    def breaks(unit: UnitOfWork, definition: StepDefinition) -> object:
        if unit.workflow.pk == first.pk:
            raise RuntimeError("broken")
        return real(unit, definition)

    monkeypatch.setattr(signal_timeouts, "timed_out", breaks)
    with travel(LATE):
        assert expire_due("default") == 1

    assert_state(first, "ready")
    assert_state(second, "canceled")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("cls", "expected"), [(TimesOutSkip, ("finished", "skipped")), (TimesOut, ("paused", "failed"))]
)
def test_a_worker_handles_a_passed_deadline(cls: type[Workflow], expected: tuple[str, str]) -> None:
    workflow = at_gate(cls)
    age(workflow, LATE)

    Worker(drain=True, poll_interval=0.05).run()

    assert_state(workflow, expected[0])
    assert_step(workflow, "work", expected[1])


@pytest.mark.django_db
def test_a_waiting_step_is_never_stuck_or_overdue() -> None:
    workflow = at_gate(Parcel)

    with travel(timedelta(days=400)):
        counts = housekeep()
        assert (counts.recovered, counts.redispatched, counts.expired, counts.woken) == (0, 0, 0, 0)
        assert_waiting_for(workflow, "scanned")


@pytest.mark.django_db
def test_a_step_that_has_its_signal_has_no_deadline() -> None:
    workflow = TimesOutSkip.start()
    workflow.signal("go", "early")

    run_next_step(workflow)

    execution = assert_step(workflow, "work", "completed", "success")
    assert (execution.waiting_since, execution.wait_deadline) == (None, None)
