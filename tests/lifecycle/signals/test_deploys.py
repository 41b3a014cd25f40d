"""Deploys while workflows wait for a signal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from geneva_drive import StepNotDefinedError, Workflow
from geneva_drive.definition.registry import registry
from geneva_drive.execution.signal_timeouts import expire_due
from geneva_drive.housekeeping import housekeep
from geneva_drive.housekeeping.waiting_steps import wake_waiting
from geneva_drive.testing import (
    assert_state,
    assert_step,
    assert_waiting_for,
    run_due,
    run_to_end,
    travel,
)
from tests.definition.support import define, registry_left_alone
from tests.lifecycle.signals.support import active, signal_rows

pytestmark = pytest.mark.django_db

LATE = timedelta(days=1, minutes=1)


@pytest.fixture(autouse=True)
def _registry_left_alone() -> Iterator[None]:
    with registry_left_alone():
        yield


def deploy(steps: str) -> Any:
    """Replace the class by one with these steps, and return it."""
    lines = ["class Shipment(Base):", "    may_proceed_without_hero = True"]
    lines += [f"    {line}" for line in steps.strip().splitlines()]
    return define("\n".join(lines))


WAITS = """
@step(wait_for="paid", timeout=timedelta(days=1), on_timeout="cancel")
def ship(self): pass
@step
def tell(self): pass
"""
WAITS_FOR_ANOTHER = WAITS.replace("paid", "settled")
NO_LONGER_WAITS = """
@step
def ship(self): pass
@step
def tell(self): pass
"""
GRAVESTONE = """
ship = removed_step()
@step
def tell(self): pass
"""
WITHOUT = """
@step
def tell(self): pass
"""
RENAMED = """
@step(wait_for="paid", formerly=["ship"])
def send(self): pass
@step
def tell(self): pass
"""
LAST_IS_GRAVESTONE = """
@step
def other(self): pass
ship = removed_step()
"""


def undeploy() -> None:
    """Continue with code that does not declare the class."""
    registry._classes.pop("testapp.Shipment")


def waiting() -> Workflow:
    """Return a workflow that waits at ``ship``."""
    workflow: Workflow = run_to_end(deploy(WAITS).start())
    assert_waiting_for(workflow, "paid")
    return workflow


def fresh(workflow: Workflow) -> Workflow:
    """Return the workflow as an instance of its current class."""
    found: Workflow = Workflow.objects.get(pk=workflow.pk)
    return found


# -- gravestones


def test_housekeeping_wakes_a_workflow_that_waits_at_a_gravestone() -> None:
    workflow = waiting()
    deploy(GRAVESTONE)

    assert wake_waiting("default") == 1

    assert_step(workflow, "ship", "skipped", "skipped")
    workflow = run_to_end(fresh(workflow))
    assert_state(workflow, "finished")
    assert_step(workflow, "tell", "completed", "success")


def test_a_workflow_that_waits_at_a_final_gravestone_finishes() -> None:
    workflow = waiting()
    deploy(LAST_IS_GRAVESTONE)

    housekeep()

    assert_state(workflow, "finished")
    assert_step(workflow, "ship", "skipped", "skipped")


def test_resume_wakes_a_paused_workflow_that_waits_at_a_gravestone() -> None:
    workflow = waiting()
    workflow.pause()
    deploy(GRAVESTONE)
    assert wake_waiting("default") == 0, "it is paused: a person decides"

    fresh(workflow).resume()

    assert_step(workflow, "ship", "skipped", "skipped")
    assert_state(workflow, "ready")
    assert workflow.next_step_name == "tell"
    assert active(workflow).state == "scheduled"


def test_a_gravestone_consumes_an_attached_signal() -> None:
    workflow = waiting()
    workflow.signal("paid")
    deploy(GRAVESTONE)

    run_to_end(fresh(workflow))

    assert_step(workflow, "ship", "skipped", "skipped")
    assert signal_rows(workflow) == [("paid", "consumed", 1, 1)]


def test_a_timeout_has_no_effect_at_a_gravestone() -> None:
    workflow = waiting()
    deploy(GRAVESTONE)

    with travel(LATE):
        assert expire_due("default") == 1

    assert_state(workflow, "ready")
    assert_step(workflow, "ship", "skipped", "skipped")


def test_a_signal_wakes_a_workflow_that_waits_at_a_gravestone() -> None:
    workflow = waiting()
    deploy(GRAVESTONE)

    fresh(workflow).signal("anything")
    run_to_end(fresh(workflow))

    assert_state(workflow, "finished")
    assert_step(workflow, "ship", "skipped", "skipped")


def test_resume_past_a_gravestone_consumes_the_signal_of_its_failed_attempt() -> None:
    workflow = run_to_end(deploy(WAITS.replace("def ship(self): pass", "def ship(self): 1 / 0")).start())
    workflow.signal("paid")
    run_to_end(workflow, raise_errors=False)
    assert signal_rows(workflow) == [("paid", "claimed", 1, 0)]
    deploy(GRAVESTONE)

    fresh(workflow).resume()

    assert signal_rows(workflow) == [("paid", "consumed", 1, 1)]


# -- steps that no longer wait, or wait for another signal


def test_housekeeping_wakes_a_step_that_no_longer_waits() -> None:
    workflow = waiting()
    deploy(NO_LONGER_WAITS)

    assert wake_waiting("default") == 1

    assert active(workflow).state == "scheduled"
    run_to_end(fresh(workflow))
    assert_step(workflow, "ship", "completed", "success")


def test_housekeeping_wakes_a_step_whose_new_signal_was_already_sent() -> None:
    workflow = waiting()
    workflow.signal("settled")
    deploy(WAITS_FOR_ANOTHER)

    assert wake_waiting("default") == 1

    run_to_end(fresh(workflow))
    assert_state(workflow, "finished")
    assert signal_rows(workflow) == [("settled", "consumed", 1, 1)]


def test_housekeeping_does_not_wake_a_step_without_its_signal() -> None:
    workflow = waiting()
    workflow.signal("unrelated")

    assert wake_waiting("default") == 0

    assert_waiting_for(workflow, "paid")


def test_housekeeping_finds_waiting_steps_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geneva_drive.housekeeping.waiting_steps._PAGE", 2)
    for _ in range(5):
        waiting()
    deploy(NO_LONGER_WAITS)

    assert wake_waiting("default") == 5


def test_a_sender_with_the_new_code_wakes_a_step_that_no_longer_waits() -> None:
    workflow = waiting()
    deploy(NO_LONGER_WAITS)

    fresh(workflow).signal("whatever")

    assert active(workflow).state == "scheduled"
    assert active(workflow).signal_id is None


def test_an_attached_signal_stays_attached_when_the_step_now_waits_for_another() -> None:
    workflow = waiting()
    workflow.signal("paid")
    deploy(WAITS_FOR_ANOTHER)

    run_to_end(fresh(workflow))

    assert_state(workflow, "finished")
    assert signal_rows(workflow) == [("paid", "consumed", 1, 1)]


def test_a_signal_reaches_a_renamed_step_under_its_old_name() -> None:
    workflow = waiting()
    deploy(RENAMED)

    fresh(workflow).signal("paid")
    run_to_end(fresh(workflow))

    assert_state(workflow, "finished")
    assert_step(workflow, "ship", "completed", "success")


# -- senders without the step


@pytest.mark.parametrize("old_code", [WITHOUT, None], ids=["step unknown", "class unknown"])
def test_a_sender_without_the_step_lets_prepare_decide(old_code: str | None) -> None:
    workflow = waiting()
    undeploy() if old_code is None else deploy(old_code)

    fresh(workflow).signal("paid", 1)

    execution = active(workflow)
    assert (execution.state, execution.signal_id) == ("scheduled", None)
    assert signal_rows(workflow) == [("paid", "pending", 0, 0)]
    deploy(WAITS)
    run_to_end(fresh(workflow))
    assert_state(workflow, "finished")
    assert signal_rows(workflow) == [("paid", "consumed", 1, 1)]


def test_a_step_woken_without_a_matching_signal_waits_again_with_its_old_deadline() -> None:
    workflow = waiting()
    before = active(workflow)
    deploy(WITHOUT)
    fresh(workflow).signal("unrelated")
    deploy(WAITS)

    with travel(timedelta(hours=5)):
        run_due()

    after = assert_waiting_for(fresh(workflow), "paid")
    assert (after.waiting_since, after.wait_deadline) == (before.waiting_since, before.wait_deadline)


def test_a_signal_sent_while_paused_is_delivered_by_code_that_declares_the_step() -> None:
    workflow = waiting()
    workflow.pause()
    undeploy()
    fresh(workflow).signal("paid")
    assert active(workflow).state == "waiting"

    with pytest.raises(StepNotDefinedError):
        fresh(workflow).resume()
    assert_state(fresh(workflow), "paused")

    deploy(WAITS)
    fresh(workflow).resume()
    run_to_end(fresh(workflow))
    assert_state(workflow, "finished")


# -- deadlines in code without the step


@pytest.mark.parametrize("old_code", [WITHOUT, None], ids=["step unknown", "class unknown"])
def test_code_without_the_step_leaves_its_deadline_for_the_grace_period(old_code: str | None) -> None:
    workflow = waiting()
    undeploy() if old_code is None else deploy(old_code)

    with travel(LATE):
        assert expire_due("default") == 0
        assert active(workflow).state == "waiting"
        with travel(timedelta(minutes=4)):
            assert expire_due("default") == 0
            assert active(workflow).state == "waiting"
        with travel(timedelta(minutes=6)):
            assert expire_due("default") == 1

    assert_state(fresh(workflow), "paused")
    assert "StepNotDefinedError" in str(assert_step(workflow, "ship", "failed", "failed").error_class)


def test_code_with_the_step_handles_its_deadline_within_the_grace_period() -> None:
    workflow = waiting()
    with travel(LATE):
        deploy(WITHOUT)
        assert expire_due("default") == 0
        deploy(WAITS)
        assert expire_due("default") == 1

    assert_state(fresh(workflow), "canceled")
    assert_step(workflow, "ship", "failed", "canceled")


def test_the_deadline_of_a_step_that_no_longer_waits_only_wakes_it() -> None:
    workflow = waiting()
    deploy(NO_LONGER_WAITS)

    with travel(LATE):
        assert expire_due("default") == 1
        assert active(workflow).state == "scheduled"
        run_to_end(fresh(workflow))

    assert_step(workflow, "ship", "completed", "success")


def test_code_without_the_class_does_not_touch_waiting_executions() -> None:
    workflow = waiting()
    undeploy()

    assert wake_waiting("default") == 0

    assert active(workflow).state == "waiting"
