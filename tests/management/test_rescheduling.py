"""``manage.py geneva_reschedule``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from geneva_drive import clock
from geneva_drive.models import StepExecution
from geneva_drive.testing import assert_state
from tests.management.test_action_commands import started, stumbled

if TYPE_CHECKING:
    from collections.abc import Callable

    from geneva_drive import Workflow

pytestmark = pytest.mark.django_db

MAY = datetime(2041, 5, 1, 7, 30, tzinfo=UTC)


def due(workflow: Workflow) -> datetime:
    return clock.utc(StepExecution.objects.get(active_workflow=workflow.pk).scheduled_for)


def test_moves_the_scheduled_step_to_a_time_and_back_to_now(command: Callable[..., Any]) -> None:
    (workflow,) = started()
    answer = command("geneva_reschedule", "2041-05-01T09:30+02:00", workflow.pk)
    assert (answer.status, answer.out.strip()) == (0, "1 rescheduled, 0 failed.")
    assert due(workflow) == MAY

    command("geneva_reschedule", "now", workflow.pk)
    assert abs((due(workflow) - clock.now()).total_seconds()) < 60


def test_a_time_without_an_offset_is_in_the_time_zone_of_the_settings(
    command: Callable[..., Any], settings: Any
) -> None:
    settings.TIME_ZONE = "Europe/Amsterdam"
    (workflow,) = started()
    command("geneva_reschedule", "2041-05-01 09:30", workflow.pk)
    assert due(workflow) == MAY


def test_a_paused_one_stays_paused(command: Callable[..., Any]) -> None:
    (workflow,) = started()
    workflow.pause()
    assert (
        command("geneva_reschedule", "2041-05-01T07:30Z", "--type", "testapp.FiveSteps", "--no-input").status
        == 0
    )
    assert_state(workflow, "paused")
    assert due(workflow) == MAY


def test_one_without_a_scheduled_step_fails(command: Callable[..., Any]) -> None:
    answer = command("geneva_reschedule", "now", stumbled().pk)
    assert (answer.status, "only a workflow with a scheduled step can be rescheduled" in answer.err) == (
        1,
        True,
    )


def test_a_dry_run_says_to_when(command: Callable[..., Any]) -> None:
    (workflow,) = started()
    before = due(workflow)
    answer = command("geneva_reschedule", "2041-05-01T09:30+02:00", workflow.pk, "--dry-run")
    assert "Would reschedule to 2041-05-01T07:30:00+00:00 1 workflow(s)." in answer.out
    assert due(workflow) == before


@pytest.mark.parametrize("when", ["tomorrow", "2041-13-01T00:00", "0001-01-01T00:00+14:00"])
def test_what_is_no_time_is_refused(command: Callable[..., Any], when: str) -> None:
    (workflow,) = started()
    answer = command("geneva_reschedule", when, workflow.pk)
    assert (answer.status, "is not a time" in answer.err) == (2, True)
