"""Loops that continue after a deploy changed their code."""

from __future__ import annotations

import pytest

from geneva_drive import Iteration, Workflow, resumable_step, step
from geneva_drive.testing import assert_cursor, run_iterations, run_next_step, run_to_end
from tests.execution.loops import CountingLoop, at, rows, stop
from tests.execution.support import Free, active, trace

pytestmark = pytest.mark.django_db


def test_a_loop_continues_under_its_new_name() -> None:
    class RenamedLoop(Free):
        @resumable_step(formerly=["count"])
        def tally(self, iteration: Iteration) -> None:
            CountingLoop.loop(self, iteration)  # type: ignore[arg-type]

    before = run_iterations(CountingLoop.start(), 4)
    Workflow.objects.filter(pk=before.pk).update(type=RenamedLoop._geneva.label)
    workflow = RenamedLoop.objects.get(pk=before.pk)

    at(7, stop)
    run_next_step(workflow, raise_errors=False)
    assert rows(workflow)[-1].step_name == "count"
    workflow.resume()

    assert_cursor(workflow, 7, iterations=7)
    assert active(workflow).step_name == "tally"
    run_to_end(workflow)
    assert trace == [*range(8), *range(7, 10)]


def test_a_loop_that_became_a_plain_step_runs_as_a_plain_step() -> None:
    class Once(Free):
        @step
        def count(self) -> None:
            trace.append("plain")

    workflow = run_iterations(CountingLoop.start(), 4)
    Workflow.objects.filter(pk=workflow.pk).update(type=Once._geneva.label)

    run_to_end(Workflow.objects.get(pk=workflow.pk))

    assert trace[4:] == ["plain"]
