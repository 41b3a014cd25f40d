"""The wait before a reattempt."""

from __future__ import annotations

from datetime import timedelta

import pytest

from geneva_drive import ExceptionPolicy, clock, step
from geneva_drive.testing import assert_state, assert_step, run_next_step, run_to_end
from tests.execution.scripted import Busy, Scripted, play, rows

pytestmark = pytest.mark.django_db


class FailsPatiently(Scripted):
    @step(
        wait=timedelta(days=3),
        on_exception=[
            ExceptionPolicy("reattempt", matching=Busy, wait=timedelta(hours=2)),
            ExceptionPolicy("reattempt", matching=KeyError, wait="exponential"),
            ExceptionPolicy("reattempt", matching=OSError, wait=lambda attempt: timedelta(minutes=attempt)),
            ExceptionPolicy("reattempt", matching=TypeError),
            ExceptionPolicy("reattempt", wait=lambda attempt: timedelta(minutes=10 / (attempt - 1))),
        ],
    )
    def work(self) -> None:
        self.script(self)


def test_the_policys_wait_is_used_and_not_the_steps() -> None:
    workflow = run_to_end(play(FailsPatiently, Busy(), KeyError(), OSError(), TypeError(), None))

    waits = [clock.utc(row.scheduled_for) - clock.utc(row.created_at) for row in rows(workflow)]
    assert waits[0] == timedelta(days=3)
    assert waits[1] == timedelta(hours=2)
    assert timedelta(seconds=3.3) < waits[2] <= timedelta(seconds=4)
    assert waits[3] == timedelta(minutes=3)
    assert waits[4] == timedelta(0)


def test_a_wait_that_raises_pauses_with_both_errors_recorded(caplog: pytest.LogCaptureFixture) -> None:
    workflow = play(FailsPatiently, ValueError("the first"))

    with pytest.raises(ZeroDivisionError) as caught:
        run_next_step(workflow)

    assert isinstance(caught.value.__context__, ValueError)
    assert_state(workflow, "paused")
    execution = assert_step(workflow, "work", "failed", "failed")
    assert execution.error_class == "builtins.ValueError"
    assert execution.error_message is not None
    assert execution.error_message.startswith("the first\n\nThen the policy's wait raised builtins.Zero")
    assert execution.error_traceback is not None
    assert "ValueError: the first" in execution.error_traceback
    assert "ZeroDivisionError" in execution.error_traceback
    assert execution.metadata["reason"] == "the policy's wait raised ZeroDivisionError"
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [caught.value]
