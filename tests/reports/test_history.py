"""The progress of a loop, and which executions count as one loop."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from geneva_drive import Iteration, StepExecution, Workflow, resumable_step, step
from geneva_drive.reports.history import Progress, chains, history, progress
from geneva_drive.testing import run_iterations, run_next_step, run_to_end, travel

pytestmark = pytest.mark.django_db


class WatchedLoop(Workflow):
    """A loop between two plain steps."""

    may_proceed_without_hero = True

    class Meta:
        app_label = "testapp"

    @step
    def before(self) -> None:
        pass

    @resumable_step(max_iterations=4)
    def loop(self, iteration: Iteration) -> None:
        for item in iteration.iterate(range(10)):
            if self.metadata == item:
                self.metadata = None
                self.save()
                raise RuntimeError

    @step
    def after(self) -> None:
        pass


def test_a_loop_of_several_executions_is_one_in_history() -> None:
    workflow = run_to_end(WatchedLoop.start())

    assert [(chain.step_name, len(chain.executions)) for chain in history(workflow)] == [
        ("before", 1),
        ("loop", 3),
        ("after", 1),
    ]
    assert [chain.last.outcome for chain in history(workflow)] == 3 * ["success"]


def test_a_resumed_failure_belongs_to_its_loop_and_a_rewound_one_does_not() -> None:
    workflow = run_next_step(WatchedLoop.start(metadata=6))
    for _ in range(2):
        run_next_step(workflow, raise_errors=False)
    workflow.resume()
    run_next_step(workflow)
    workflow.pause()
    workflow.resume_at("loop")

    assert [
        (chain.step_name, [each.outcome for each in chain.executions]) for chain in history(workflow)
    ] == [
        ("before", ["success"]),
        ("loop", ["continued", "failed", "success"]),
        ("after", ["canceled"]),
        ("loop", [None]),
    ]


def test_the_progress_of_the_current_loop() -> None:
    workflow = WatchedLoop.start()
    assert progress(workflow) is None
    run_next_step(workflow)
    assert progress(workflow) is None, "it has not begun"

    run_iterations(workflow, 3)
    seen = progress(workflow)
    assert seen is not None
    assert (seen.iterations, seen.total, seen.share, str(seen)) == (3, 10, 0.3, "3 of 10 (30%)")

    run_iterations(workflow, 7)
    assert progress(workflow) is None, "it is done, and another step is next"
    done = history(workflow)[1].progress
    assert done is not None
    assert (done.iterations, done.remaining) == (10, timedelta(0))


def row(**values: Any) -> StepExecution:
    return StepExecution(step_name="loop", **values)


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def test_rate_and_estimate_exclude_waits() -> None:
    executions = [
        row(
            pk=1,
            iterations=50,
            iterations_total=200,
            started_at=NOON,
            finished_at=NOON + timedelta(seconds=10),
        ),
        row(
            pk=2,
            continues_from_id=1,
            iterations=100,
            iterations_total=200,
            started_at=NOON + timedelta(hours=5),
            finished_at=NOON + timedelta(hours=5, seconds=10),
        ),
        row(pk=3, continues_from_id=2, iterations=100, iterations_total=200),
    ]

    (chain,) = chains(reversed(executions))
    seen = chain.progress

    assert seen is not None
    assert seen.worked == timedelta(seconds=20)
    assert (seen.rate, seen.remaining) == (5.0, timedelta(seconds=20))


@pytest.mark.parametrize(
    ("seen", "share", "rate", "remaining"),
    [
        (Progress(0, None, timedelta(0)), None, None, None),
        (Progress(5, None, timedelta(seconds=1)), None, 5.0, None),
        (Progress(0, 10, timedelta(seconds=1)), 0.0, None, None),
        (Progress(0, 0, timedelta(seconds=1)), 1.0, None, None),
        (Progress(12, 10, timedelta(seconds=4)), 1.0, 3.0, timedelta(0)),
    ],
)
def test_unknown_values_are_none(
    seen: Progress, share: float | None, rate: float | None, remaining: timedelta | None
) -> None:
    assert (seen.share, seen.rate, seen.remaining) == (share, rate, remaining)


def test_an_execution_in_progress_is_measured_until_now() -> None:
    workflow = run_next_step(WatchedLoop.start())
    execution = workflow.executions.get(step_name="loop")
    execution.started_at = execution.created_at
    execution.iterations = 1

    (chain,) = chains([execution])
    with travel(timedelta(hours=3)):
        seen = chain.progress

    assert seen is not None
    assert seen.worked >= timedelta(hours=3)


def test_a_continuation_of_a_row_outside_the_query_starts_a_chain() -> None:
    first, second = chains([row(pk=5, continues_from_id=4, iterations=1), row(pk=9, iterations=0)])

    assert ([each.pk for each in first.executions], [each.pk for each in second.executions]) == ([5], [9])
    assert second.progress is None


def test_keys_from_hosts_with_different_clocks_do_not_disorder_a_chain() -> None:
    ahead, behind = uuid.UUID(int=9), uuid.UUID(int=1)
    executions = [
        row(pk=behind, continues_from_id=ahead, iterations=2, created_at=NOON + timedelta(seconds=1)),
        row(pk=ahead, iterations=1, created_at=NOON),
    ]

    (chain,) = chains(executions)

    assert [each.pk for each in chain.executions] == [ahead, behind]
