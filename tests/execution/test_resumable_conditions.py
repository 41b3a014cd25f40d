"""The conditions of a loop are checked again before each of its executions."""

from __future__ import annotations

import pytest

from geneva_drive import Iteration, Workflow, cancel_if, resumable_step
from geneva_drive.testing import assert_state, run_next_step, run_to_end
from tests.execution.support import Free, trace

pytestmark = pytest.mark.django_db


class AskingLoop(Free):
    @cancel_if
    def gone(self) -> bool:
        trace.append("cancel_if")
        return bool(self.metadata == "gone")

    def enough(self) -> bool:
        trace.append("skip_if")
        return bool(self.metadata == "enough")

    @resumable_step(max_iterations=1, skip_if="enough")
    def count(self, iteration: Iteration) -> None:
        for item in iteration.iterate(range(3)):
            trace.append(item)


def test_conditions_are_checked_again_for_each_continuation() -> None:
    run_to_end(AskingLoop.start())

    assert trace == ["cancel_if", "skip_if", 0, "cancel_if", "skip_if", 1, "cancel_if", "skip_if", 2]


@pytest.mark.parametrize(("told", "state"), [("gone", "canceled"), ("enough", "finished")])
def test_a_condition_that_becomes_true_ends_the_loop(told: str, state: str) -> None:
    workflow = run_next_step(AskingLoop.start())
    Workflow.objects.filter(pk=workflow.pk).update(metadata=told)

    run_to_end(workflow)

    assert [each for each in trace if isinstance(each, int)] == [0]
    assert_state(workflow, state)
