"""Where a loop ends its execution: at its limits and at a shutdown, but never before an item is done."""

from __future__ import annotations

from datetime import timedelta

import pytest

from geneva_drive import Iteration, resumable_step
from geneva_drive.dispatchers.running import DispatchedRunner
from geneva_drive.execution.executor import execute
from geneva_drive.execution.runner import Runner
from geneva_drive.testing import assert_cursor, assert_state, run_to_end
from tests.execution.loops import CountingLoop, SparingLoop, rows
from tests.execution.support import active, history, run, trace

pytestmark = pytest.mark.django_db


class HastyLoop(CountingLoop):
    """Ten items, three at a time."""

    @resumable_step(max_iterations=3)
    def count(self, iteration: Iteration) -> None:
        self.loop(iteration)


class _Stopping(Runner):
    """Run a worker that is asked to stop while the body runs."""

    def __init__(self, after: int) -> None:
        super().__init__(inline_continuation=False)
        self._after = after

    def should_stop(self) -> bool:
        return len(trace) >= self._after


def test_at_max_iterations_the_execution_ends_and_another_continues() -> None:
    workflow = run_to_end(HastyLoop.start())

    assert trace == [*range(10), "after"]
    assert history(workflow) == 3 * [("count", "completed", "continued")] + [
        ("count", "completed", "success"),
        ("after", "completed", "success"),
    ]
    *chain, _ = rows(workflow)
    assert [row.cursor for row in chain] == [3, 6, 9, 10]
    assert [row.iterations for row in chain] == [3, 6, 9, 10]
    assert [row.continues_from_id for row in chain] == [None, *(row.pk for row in chain[:-1])]
    assert chain[0].metadata == {"reason": "max_iterations"}


def test_an_interruption_lets_other_work_run_first() -> None:
    workflow = HastyLoop.start()

    performed = run(workflow, inline_continuation=True)

    assert performed == 1, "the successor is left to the dispatcher although this runner continues inline"
    successor = active(workflow)
    assert (successor.state, successor.cursor, successor.continues_from_id) == (
        "scheduled",
        3,
        rows(workflow)[0].pk,
    )
    assert_state(workflow, "ready")


def test_the_last_item_completes_the_step_without_a_continuation() -> None:
    class Exact(CountingLoop):
        @resumable_step(max_iterations=5)
        def count(self, iteration: Iteration) -> None:
            self.loop(iteration)

    workflow = run_to_end(Exact.start())

    # Each execution does at least one item; none is created only to find nothing left.
    assert [outcome for _, _, outcome in history(workflow)] == ["continued", "success", "success"]


def test_max_runtime_is_checked_after_each_item_and_at_least_one_is_done() -> None:
    class Slow(CountingLoop):
        @resumable_step(max_runtime=timedelta(seconds=10))
        def count(self, iteration: Iteration) -> None:
            with pytest.MonkeyPatch.context() as patch:
                for item in iteration.iterate(range(6)):
                    trace.append(item)
                    now = 1000.0 * (item + 1)
                    patch.setattr("geneva_drive.clock.stopwatch", lambda now=now: now + 1e9)

    workflow = run_to_end(Slow.start())

    assert trace == [*range(6), "after"]
    assert [outcome for _, _, outcome in history(workflow)] == 5 * ["continued"] + 2 * ["success"]
    assert rows(workflow)[0].metadata == {"reason": "max_runtime"}


def test_a_worker_shutdown_ends_the_loop_after_the_current_item() -> None:
    workflow = SparingLoop.start()

    execute(active(workflow).pk, runner=_Stopping(after=6))

    assert trace == [0, 1, 2, 3, 4, 5]
    assert_cursor(workflow, 6, iterations=6)
    assert rows(workflow)[0].metadata == {"reason": "shutdown"}
    run_to_end(workflow)
    assert trace == [*range(10), "after"]


def test_a_shutdown_of_a_dispatchers_process_ends_the_loop_too() -> None:
    workflow = CountingLoop.start()

    execute(active(workflow).pk, runner=DispatchedRunner(None, is_stopping=lambda: len(trace) >= 3))

    assert_cursor(workflow, 3, iterations=3)
    assert rows(workflow)[0].outcome == "continued"


def test_at_least_one_item_is_done_before_a_stop() -> None:
    class Careful(CountingLoop):
        @resumable_step(max_iterations=1)
        def count(self, iteration: Iteration) -> None:
            iteration.checkpoint()
            self.loop(iteration)

    workflow = Careful.start()

    execute(active(workflow).pk, runner=_Stopping(after=0))

    assert trace == [0]
