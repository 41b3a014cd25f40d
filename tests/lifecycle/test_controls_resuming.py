"""Continuing at another step: resume_at and skip."""

from __future__ import annotations

from datetime import timedelta

import pytest

from geneva_drive import StepNotDefinedError, clock
from geneva_drive.testing import assert_state, run_to_end
from tests.execution.support import active, everything, history, trace
from tests.lifecycle.controls import TWO_CANCELED, TWO_WAITS, Moved, paused

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nowhere", "not defined"),
        ("buried", "a removed step"),
        ("__class__", "not defined"),
        ("", "not defined"),
    ],
)
def test_resume_at_refuses_steps_that_cannot_run_and_lists_those_that_can(name: str, what: str) -> None:
    workflow = paused()
    before = everything(workflow)

    with pytest.raises(StepNotDefinedError) as raised:
        workflow.resume_at(name)

    assert what in str(raised.value)
    assert "one, two, three" in str(raised.value)
    assert everything(workflow) == before


def test_resume_at_runs_the_step_now_and_ignores_its_wait() -> None:
    workflow = paused()

    workflow.resume_at("two")

    assert clock.utc(active(workflow).scheduled_for) <= clock.now("default")
    assert history(workflow)[1:] == [TWO_CANCELED, TWO_WAITS]


def test_resume_at_accepts_a_former_name_and_an_earlier_step() -> None:
    workflow = paused()
    workflow.resume_at("zwei")
    assert active(workflow).step_name == "two"

    workflow.pause().resume_at("one")
    run_to_end(workflow)
    assert trace == ["one", "one", "two", "three"]


def test_skip_keeps_the_next_steps_wait() -> None:
    workflow = Moved.start()

    workflow.skip()

    row = active(workflow)
    assert row.step_name == "two"
    assert clock.utc(row.scheduled_for) - clock.utc(row.created_at) == timedelta(days=1)
    assert trace == []


@pytest.mark.parametrize("first", ["ready", "paused"])
def test_a_skip_of_the_last_step_finishes(first: str) -> None:
    workflow = Moved.start()
    workflow.skip()
    workflow.skip()
    if first == "paused":
        workflow.pause()
    workflow.skip()

    assert_state(workflow, "finished")
    assert workflow.next_step_name is None
    assert [state for _, state, _ in history(workflow)] == ["skipped", "skipped", "skipped"]
