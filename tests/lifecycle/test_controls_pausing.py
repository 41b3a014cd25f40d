"""Pause and resume: what is preserved, and a pause requested while a step runs."""

from __future__ import annotations

import pytest

from geneva_drive import StepExecution, Workflow, clock, step
from geneva_drive.execution.recovery import recover_one
from geneva_drive.testing import assert_state, run_next_step
from tests.execution.support import Free, active, history, run, trace
from tests.lifecycle.controls import THREE_WAITS, TWO_FAILED, TWO_WAITS, failed, pause_requested, ready

pytestmark = pytest.mark.django_db


def test_a_preserved_execution_keeps_its_time() -> None:
    workflow = ready()
    row = active(workflow)

    workflow.pause().resume()

    kept = active(workflow)
    assert (kept.pk, kept.scheduled_for, kept.on_hold) == (row.pk, row.scheduled_for, False)


def test_a_failed_step_is_retried_without_its_wait_and_the_workflow_continues() -> None:
    workflow = failed()

    workflow.resume()

    assert clock.utc(active(workflow).scheduled_for) <= clock.now("default")
    run(workflow)
    assert history(workflow)[1:] == [TWO_FAILED, ("two", "completed", "success"), THREE_WAITS]


@pytest.mark.parametrize("inline_continuation", [False, True])
def test_a_pause_during_a_step_lets_it_finish_and_puts_the_next_on_hold(inline_continuation: bool) -> None:
    class PausedWithin(Free):
        @step
        def one(self) -> None:
            Workflow.objects.get(pk=self.pk).pause(by="somebody")

        @step
        def two(self) -> None:
            trace.append("two")

    workflow = PausedWithin.start()

    run(workflow, inline_continuation=inline_continuation)

    assert history(workflow) == [("one", "completed", "success"), TWO_WAITS]
    assert_state(workflow, "paused")
    assert (workflow.next_step_name, workflow.pause_requested_at) == ("two", None)
    assert active(workflow).on_hold
    assert workflow.transitioned_at is not None
    # Dispatched neither by a message nor by a scan.
    assert run(workflow) == 0
    workflow.resume()
    run(workflow)
    assert_state(workflow, "finished")


def test_a_pause_during_the_last_step_lets_the_workflow_finish() -> None:
    class PausedAtLast(Free):
        @step
        def last(self) -> None:
            Workflow.objects.get(pk=self.pk).pause()

    workflow = run_next_step(PausedAtLast.start())

    assert_state(workflow, "finished")
    assert workflow.pause_requested_at is None


def test_resume_withdraws_a_pause_request() -> None:
    class Withdrawn(Free):
        @step
        def one(self) -> None:
            Workflow.objects.get(pk=self.pk).pause().resume()

        @step
        def two(self) -> None:
            pass

    workflow = run_next_step(Withdrawn.start())

    assert_state(workflow, "ready")
    assert not active(workflow).on_hold
    assert [note.action for note in workflow.operator_actions.order_by("pk")] == ["pause", "resume"]


@pytest.mark.parametrize(
    ("word", "state", "rows"),
    [
        ("finish", "finished", [("one", "completed", "success")]),
        ("cancel", "canceled", [("one", "canceled", "canceled")]),
        ("pause", "paused", [("one", "canceled", "workflow_paused")]),
        ("reattempt", "paused", [("one", "completed", "reattempted"), ("one", "scheduled", None)]),
        ("skip", "paused", [("one", "skipped", "skipped"), TWO_WAITS]),
        ("raise", "paused", [("one", "failed", "failed")]),
        ("exit", "paused", [("one", "failed", "recovered"), ("one", "scheduled", None)]),
    ],
)
def test_a_pause_request_is_never_lost_however_the_step_ends(
    word: str, state: str, rows: list[tuple[str, str, str | None]]
) -> None:
    class EndsAsTold(Free):
        @step
        def one(self) -> None:
            Workflow.objects.get(pk=self.pk).pause()
            if word == "raise":
                raise ValueError("no")
            if word == "exit":
                raise SystemExit(1)
            getattr(self, word)()

        @step
        def two(self) -> None:
            pass

    workflow = EndsAsTold.start()
    run_next_step(workflow, raise_errors=False)

    assert_state(workflow, state)
    assert workflow.pause_requested_at is None
    assert history(workflow) == rows


def test_recovery_honors_a_pause_request() -> None:
    workflow = pause_requested()
    row = active(workflow)

    recover_one(row.pk, workflow.pk, None, using="default", why="tried", still_dead=lambda: True)

    assert_state(workflow, "paused")
    assert workflow.pause_requested_at is None
    assert history(workflow)[1:] == [("two", "failed", "recovered"), TWO_WAITS]
    assert active(workflow).on_hold


def test_resume_resets_the_count_of_crashes() -> None:
    workflow = ready()
    StepExecution.objects.filter(pk=active(workflow).pk).update(crashes=2)

    workflow.pause().resume()
    assert active(workflow).crashes == 0

    StepExecution.objects.filter(pk=active(workflow).pk).update(crashes=2)
    workflow.pause().resume_at("two")
    assert active(workflow).crashes == 0
