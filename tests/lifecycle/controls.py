"""The controls, and a workflow in each state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from geneva_drive import StepExecution, Workflow, removed_step, step
from geneva_drive.testing import run_next_step, run_to_end
from tests.execution.support import Free, active, trace


class Moved(Free):
    @step
    def one(self) -> None:
        trace.append("one")

    @step(wait=timedelta(days=1), formerly=["zwei"])
    def two(self) -> None:
        trace.append("two")
        if trace.count("two") == 1 and "fail" in trace:
            raise ValueError("the first time")

    buried = removed_step()

    @step
    def three(self) -> None:
        trace.append("three")


def ready() -> Workflow:
    """Waits for its second step."""
    return run_next_step(Moved.start())


def paused() -> Workflow:
    return ready().pause()


def failed() -> Workflow:
    """Paused because its second step raised an error."""
    trace.append("fail")
    workflow = run_next_step(ready(), raise_errors=False)
    assert workflow.state == "paused"
    return workflow


def performing() -> Workflow:
    workflow = ready()
    StepExecution.objects.filter(pk=active(workflow).pk).update(state="in_progress")
    Workflow.objects.filter(pk=workflow.pk).update(state="performing", current_step_name="two")
    workflow.refresh_from_db()
    return workflow


def pause_requested() -> Workflow:
    return performing().pause()


def finished() -> Workflow:
    return run_to_end(Moved.start())


def canceled() -> Workflow:
    return ready().cancel()


CONTROLS: dict[str, Callable[[Any], Any]] = {
    "pause": lambda workflow: workflow.pause(by="eve", reason="r"),
    "resume": lambda workflow: workflow.resume(by="eve", reason="r"),
    "resume_at": lambda workflow: workflow.resume_at("three", by="eve", reason="r"),
    "skip": lambda workflow: workflow.skip(by="eve", reason="r"),
    "cancel": lambda workflow: workflow.cancel(by="eve", reason="r"),
}

# Step, state and outcome, as `history` returns them.
TWO_WAITS = ("two", "scheduled", None)
TWO_RUNS = ("two", "in_progress", None)
TWO_FAILED = ("two", "failed", "failed")
TWO_SKIPPED = ("two", "skipped", "skipped")
TWO_CANCELED = ("two", "canceled", "canceled")
THREE_WAITS = ("three", "scheduled", None)
