"""How often a failing step is reattempted: what is counted, and what resets the count."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from geneva_drive import ExceptionPolicy, Workflow, clock, step
from geneva_drive.conf import settings as geneva
from geneva_drive.housekeeping import recover
from geneva_drive.testing import assert_state, crash_at, run_next_step, run_step, run_to_end, travel
from tests.execution.scripted import Busy, FailsShort, Scripted, play, rows

pytestmark = pytest.mark.django_db


class FailsOnce(Scripted):
    @step(on_exception=ExceptionPolicy("reattempt", max_reattempts=1))
    def work(self) -> None:
        self.script(self)

    @step
    def after(self) -> None: ...


class FailsThrice(Scripted):
    @step(on_exception=ExceptionPolicy("reattempt", max_reattempts=3), formerly=["labour"])
    def work(self) -> None:
        self.script(self)

    @step
    def after(self) -> None: ...


class FailsEver(Scripted):
    @step(on_exception=ExceptionPolicy("reattempt", max_reattempts=None))
    def work(self) -> None:
        self.script(self)


@pytest.mark.parametrize(("cls", "reattempts"), [(FailsOnce, 1), (FailsThrice, 3), (FailsShort, 100)])
def test_a_limit_of_n_means_one_attempt_and_n_reattempts(cls: type[Scripted], reattempts: int) -> None:
    workflow = run_to_end(play(cls, Busy("still")))

    assert Scripted.runs == 1 + reattempts
    assert_state(workflow, "paused")
    assert workflow.next_step_name == "work"
    executions = rows(workflow)
    assert [row.outcome for row in executions] == ["reattempted"] * reattempts + ["failed"]
    assert {row.error_message for row in executions} == {"still"}
    assert [row.reattempts for row in executions] == list(range(reattempts + 1))
    assert executions[-1].metadata["reason"] == f"used up its reattempts: {reattempts} in a row"


def test_without_a_limit_reattempts_continue_but_never_spin() -> None:
    workflow = run_to_end(play(FailsEver, *[Busy()] * 105, None))

    assert Scripted.runs == 106
    assert_state(workflow, "finished")
    for row in rows(workflow)[1:]:
        assert clock.utc(row.scheduled_for) - clock.utc(row.created_at) == timedelta(seconds=1)


def test_a_success_in_between_resets_the_count() -> None:
    workflow = run_to_end(play(FailsThrice, Busy(), Busy(), Busy(), None, Busy()))

    assert_state(workflow, "finished")
    assert Scripted.runs == 4
    # When the workflow returns to the step, it has all its reattempts again.
    second = play(FailsThrice, Busy())
    assert Scripted.runs == 4
    run_to_end(second)
    assert Scripted.runs == 8


def test_a_reattempt_by_the_step_itself_is_not_counted_and_resets_the_count() -> None:
    again: Callable[[Workflow], Any] = lambda workflow: workflow.reattempt()  # noqa: E731
    workflow = run_to_end(
        play(FailsThrice, Busy(), Busy(), Busy(), again, again, Busy(), Busy(), Busy(), Busy(), None)
    )

    assert_state(workflow, "paused")
    assert Scripted.runs == 3 + 2 + 4
    assert [row.reattempts for row in rows(workflow)] == [0, 1, 2, 3, 0, 0, 1, 2, 3]


def test_a_crash_is_neither_counted_nor_resets_the_count() -> None:
    workflow = play(FailsThrice, Busy())
    run_next_step(workflow)
    run_next_step(workflow)
    with crash_at("prepared"):
        run_next_step(workflow)
    with travel(geneva.STUCK_AFTER + timedelta(minutes=1)):
        assert recover(str(workflow._state.db)).recovered == 1
        run_to_end(workflow)

    assert_state(workflow, "paused")
    # The crashed attempt never started.
    assert Scripted.runs == 4
    assert [row.outcome for row in rows(workflow)] == [
        "reattempted",
        "reattempted",
        "recovered",
        "reattempted",
        "failed",
    ]


def test_crashes_are_counted_across_reattempts() -> None:
    """A step that alternately fails and crashes ends at the limit of crashes at the latest."""
    workflow = play(FailsEver, Busy())
    with contextlib.ExitStack() as later:
        for _ in range(geneva.MAX_CRASHES):
            run_next_step(workflow)
            with crash_at("performed"):
                run_next_step(workflow)
            later.enter_context(travel(geneva.STUCK_AFTER + timedelta(minutes=1)))
            assert recover(str(workflow._state.db)).recovered == 1
            workflow.refresh_from_db()

    assert_state(workflow, "paused")
    assert rows(workflow)[-1].metadata["reason"] == "crashed 3 times in a row"


@pytest.mark.parametrize("how", ["resume", "resume_at", "resume what was scheduled"])
def test_an_operator_action_resets_the_count(how: str) -> None:
    workflow = play(FailsThrice, Busy())
    if how == "resume what was scheduled":
        run_next_step(workflow)
        run_next_step(workflow)
        workflow.pause(by="anna")
        workflow.resume(by="anna")
        done = 2
    else:
        run_to_end(workflow)
        done = 4
        if how == "resume":
            workflow.resume(by="anna")
        else:
            workflow.resume_at("work", by="anna")

    assert rows(workflow)[-1].reattempts == 0
    run_to_end(workflow)
    assert Scripted.runs == done + 4


def test_the_count_survives_a_rename_of_the_step() -> None:
    workflow = play(FailsThrice, Busy())
    run_next_step(workflow)
    workflow.executions.filter(state="scheduled").update(step_name="labour")

    run_to_end(workflow)

    assert Scripted.runs == 4
    assert [row.step_name for row in rows(workflow)] == ["work", "labour", "work", "work"]


def test_a_steps_own_writes_to_its_row_do_not_change_the_count() -> None:
    def scribble(workflow: Any) -> None:
        workflow.current_execution.metadata = {"mine": True}
        workflow.current_execution.save()
        raise Busy

    workflow = run_to_end(play(FailsThrice, scribble))

    assert Scripted.runs == 4
    assert rows(workflow)[1].metadata["mine"] is True


class FailsListed(Scripted):
    @step(
        on_exception=[
            ExceptionPolicy("reattempt", matching=Busy, max_reattempts=50, terminal_action="skip"),
            ExceptionPolicy("reattempt", max_reattempts=2, terminal_action="cancel"),
        ]
    )
    def work(self) -> None:
        self.script(self)


@pytest.mark.parametrize(
    ("script", "state"), [((KeyError(), Busy()), "finished"), ((Busy(), KeyError()), "canceled")]
)
def test_a_list_shares_its_smallest_limit_and_the_matched_policy_decides_the_end(
    script: Any, state: str
) -> None:
    workflow = run_to_end(play(FailsListed, *script))

    assert Scripted.runs == 3
    assert_state(workflow, state)


def test_an_operator_can_retry_a_failed_step() -> None:
    workflow = run_to_end(play(FailsOnce, Busy(), Busy(), None))
    assert_state(workflow, "paused")

    run_step(workflow, "work")

    assert_state(workflow, "ready")
    assert workflow.next_step_name == "after"
