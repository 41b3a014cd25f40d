"""``--dry-run``: the same answer as the real run would give, and nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from geneva_drive import Workflow
from geneva_drive.models import OperatorAction, StepExecution
from geneva_drive.testing import assert_state, run_to_end
from tests.management.test_action_commands import started, stumbled

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.django_db

ACTIONS = [
    ("geneva_pause",),
    ("geneva_resume",),
    ("geneva_resume_at", "two"),
    ("geneva_resume_at", "third"),
    ("geneva_resume_at", "buried"),
    ("geneva_skip",),
    ("geneva_cancel",),
    ("geneva_reschedule", "now"),
]


def gallery() -> list[Workflow]:
    """One workflow of each kind that makes a difference."""
    ready, paused, performing, asked, finished, canceled, lost, lost_paused, of_no_class = started(9)
    for each in (paused, lost_paused):
        each.pause()
    for each in (performing, asked):
        StepExecution.objects.filter(workflow=each).update(state="in_progress")
        Workflow.objects.filter(pk=each.pk).update(state="performing")
    asked.refresh_from_db()
    asked.pause()
    run_to_end(finished)
    canceled.cancel()
    for each in (lost, lost_paused):
        StepExecution.objects.filter(workflow=each).update(step_name="gone")
        Workflow.objects.filter(pk=each.pk).update(next_step_name="gone")
    Workflow.objects.filter(pk=of_no_class.pk).update(type="testapp.Gone")
    failed = stumbled()
    return [
        ready,
        paused,
        performing,
        asked,
        finished,
        canceled,
        lost,
        lost_paused,
        of_no_class,
        failed,
    ]


@pytest.mark.parametrize("action", ACTIONS, ids=" ".join)
def test_foretells_what_the_real_run_says_of_each(
    command: Callable[..., Any], action: tuple[str, ...]
) -> None:
    keys = [each.pk for each in gallery()] + [10**9]
    before = list(Workflow.objects.order_by("pk").values())
    recorded = OperatorAction.objects.count()

    foretold = command(*action, *keys, "--dry-run", "--json")

    assert list(Workflow.objects.order_by("pk").values()) == before
    assert OperatorAction.objects.count() == recorded
    real = command(*action, *keys, "--json")
    results = real.json["results"]
    assert foretold.json["ids"] == [each["id"] for each in results if each["error"] is None]
    errors = {each["id"]: each["error"] for each in results if each["error"] is not None}
    assert {each["id"]: each["error"] for each in foretold.json["failed"]} == errors
    assert errors
    assert foretold.status == real.status == 1


def test_says_what_would_fail_and_why(command: Callable[..., Any]) -> None:
    ready, ended = started(2)
    ended.cancel()

    answer = command("geneva_pause", ready.pk, ended.pk, 10**9, "--dry-run")

    assert answer.status == 1
    assert answer.out.splitlines() == ["Would pause 1 workflow(s), 2 would fail.", f"  {ready.pk}"]
    assert "is canceled: only a ready or performing workflow can be paused." in answer.err
    assert f"{10**9}: there is no workflow {10**9} in 'default'" in answer.err
    assert_state(ready, "ready")


def test_refuses_a_step_that_no_class_has(command: Callable[..., Any]) -> None:
    (workflow,) = started()
    workflow.pause()
    answer = command("geneva_resume_at", "shp", workflow.pk, "--dry-run")
    assert (answer.status, "'shp', which is not defined" in answer.err) == (1, True)


def test_takes_as_many_queries_for_many_as_for_few(
    command: Callable[..., Any], django_assert_num_queries: Any
) -> None:
    command("geneva_cancel", "--state", "ready", "--dry-run")
    started(2)
    with django_assert_num_queries(3):
        assert command("geneva_cancel", "--state", "ready", "--dry-run").status == 0
    started(20)
    with django_assert_num_queries(3):
        assert command("geneva_cancel", "--state", "ready", "--dry-run").status == 0
