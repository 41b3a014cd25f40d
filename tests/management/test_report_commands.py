"""The commands that only read."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from geneva_drive import Workflow
from geneva_drive.models import StepExecution
from geneva_drive.testing import run_next_step, run_to_end, travel
from tests.management.test_action_commands import started, stumbled
from tests.testapp.workflows import FiveSteps, Heroless

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.django_db


class TestList:
    def test_shows_what_is_ongoing_and_where_it_stands(self, command: Callable[..., Any]) -> None:
        (ready,) = started()
        failed = stumbled()
        run_to_end(started()[0])

        lines = {line["id"]: line for line in command("geneva_list", "--json").json["workflows"]}

        assert set(lines) == {ready.pk, failed.pk}
        assert lines[ready.pk]["step"] == "one"
        assert lines[ready.pk]["hero"] == f"testapp.order {ready.hero_id}"
        assert (lines[failed.pk]["state"], lines[failed.pk]["error"]) == ("paused", "ValueError")

    def test_shows_what_is_due_and_overdue(self, command: Callable[..., Any]) -> None:
        (workflow,) = started()
        with travel(timedelta(hours=3)):
            assert "overdue by 3 h" in command("geneva_list").out
        with travel(timedelta(hours=-3)):
            assert "in 2 h 59 min" in command("geneva_list").out
        assert str(workflow.pk) in command("geneva_list").out

    def test_pages_downwards(self, command: Callable[..., Any]) -> None:
        first, second, third = started(3)
        page = command("geneva_list", "--limit", 2, "--json").json
        assert ([line["id"] for line in page["workflows"]], page["more"]) == ([third.pk, second.pk], True)
        page = command("geneva_list", "--limit", 2, "--before", second.pk, "--json").json
        assert ([line["id"] for line in page["workflows"]], page["more"]) == ([first.pk], False)

    def test_lists_a_class_that_is_gone(self, command: Callable[..., Any]) -> None:
        (workflow,) = started()
        Workflow.objects.filter(pk=workflow.pk).update(type="testapp.Gone")
        assert "testapp.Gone" in command("geneva_list").out

    def test_says_so_when_there_is_nothing(self, command: Callable[..., Any]) -> None:
        answer = command("geneva_list", "--type", "testapp.FiveSteps")
        assert (answer.status, "No workflow matches" in answer.out) == (0, True)

    def test_takes_as_many_queries_for_many_as_for_one(
        self, command: Callable[..., Any], django_assert_num_queries: Any
    ) -> None:
        stumbled()
        started(1)
        command("geneva_list")  # content types are cached, the clock is measured
        with django_assert_num_queries(3):
            command("geneva_list")
        started(20)
        with django_assert_num_queries(3):
            command("geneva_list")


class TestShow:
    def test_shows_the_steps_of_the_class_with_what_happened(self, command: Callable[..., Any]) -> None:
        (workflow,) = started()
        run_next_step(workflow)
        workflow.pause(by="ada", reason="wait for the bank")
        shown = command("geneva_show", workflow.pk, "--json").json
        statuses = {line["name"]: line["status"] for line in shown["steps"]}
        assert statuses == {
            "one": "done",
            "two": "current",
            "buried": "gravestone",
            "three": "to come",
            "four": "to come",
            "five": "to come",
        }
        assert [each["step_name"] for each in shown["attempts"]] == ["one", "two"]
        assert (shown["actions"][0]["actor"], shown["actions"][0]["reason"]) == ("ada", "wait for the bank")

    def test_is_readable_as_text(self, command: Callable[..., Any]) -> None:
        workflow = stumbled()
        out = command("geneva_show", workflow.pk).out
        assert "✓ first" in out
        assert "✗ second (failed)" in out
        assert "builtins.ValueError: stumbled" in out
        assert "Traceback" not in out
        assert "Traceback" in command("geneva_show", workflow.pk, "--errors").out

    def test_lists_attempts_in_a_table(self, command: Callable[..., Any]) -> None:
        text = command("geneva_show", stumbled().pk).out
        assert re.search(r"step +outcome +when +took +progress", text)
        assert re.search(r"second +failed/failed", text)

    def test_shows_signals(self, command: Callable[..., Any]) -> None:
        (workflow,) = started()
        workflow.signal("ping", {"a": 1}, idempotency_key="evt_1")
        assert re.search(r"ping +evt_1 +pending", command("geneva_show", workflow.pk).out)
        assert command("geneva_show", workflow.pk, "--json").json["signals"][0]["payload"] == {"a": 1}

    def test_names_a_step_that_is_not_declared(self, command: Callable[..., Any]) -> None:
        (workflow,) = started()
        StepExecution.objects.filter(workflow=workflow).update(step_name="gone")
        Workflow.objects.filter(pk=workflow.pk).update(next_step_name="gone")
        assert "? gone (undeclared)" in command("geneva_show", workflow.pk).out

    @pytest.mark.parametrize(("key", "status"), [("12345678", 1), ("x", 2)])
    def test_of_nothing_fails(self, command: Callable[..., Any], key: str, status: int) -> None:
        assert command("geneva_show", key).status == status


class TestRemovedSteps:
    def test_reports_which_gravestones_can_be_deleted(self, command: Callable[..., Any]) -> None:
        answer = command("geneva_removed_steps", "--fail-if-in-flight")
        assert answer.status == 0
        assert "testapp.FiveSteps.buried: can be deleted now" in answer.out

    def test_fails_for_a_script_when_rows_are_in_flight(self, command: Callable[..., Any]) -> None:
        (workflow,) = started()
        StepExecution.objects.filter(workflow=workflow).update(step_name="buried")
        Workflow.objects.filter(pk=workflow.pk).update(next_step_name="buried")
        assert command("geneva_removed_steps").status == 0
        answer = command("geneva_removed_steps", "--fail-if-in-flight", "--json")
        assert answer.status == 1
        rows = {(each["type"], each["step"]): each for each in answer.json}
        row = rows["testapp.FiveSteps", "buried"]
        assert (row["executions"], row["landing"], row["can_be_deleted"]) == (1, 1, False)


class TestPredeploy:
    def test_passes_when_everything_is_declared(self, command: Callable[..., Any]) -> None:
        started(2)
        answer = command("geneva_predeploy", "--strict")
        assert answer.status == 0
        assert "undeclared" not in answer.out

    @pytest.mark.parametrize("what", ["step", "class"])
    def test_fails_when_a_workflow_would_be_undeclared(self, command: Callable[..., Any], what: str) -> None:
        (workflow,) = started()
        if what == "step":
            StepExecution.objects.filter(workflow=workflow).update(step_name="gone")
            Workflow.objects.filter(pk=workflow.pk).update(next_step_name="gone")
        else:
            Workflow.objects.filter(pk=workflow.pk).update(type="testapp.Gone")
        answer = command("geneva_predeploy", "--json")
        assert answer.status == 1
        assert answer.json["undeclared"] is True
        (effect,) = [each for each in answer.json["effects"] if each["kind"] == "undeclared"]
        assert effect["workflows"] == 1
        assert effect["step"] == ("gone" if what == "step" else None)
        if what == "step":
            assert effect["message"].startswith("1 are at the step 'gone', which this code does not declare")
        else:
            assert effect["message"].startswith("1 are of this class, which this code does not declare")
            assert "geneva_cancel --type testapp.Gone" in effect["hint"]

    def test_names_a_completed_step_that_now_comes_later(self, command: Callable[..., Any]) -> None:
        (workflow,) = started()
        run_next_step(workflow)
        # As if "four" had stood before "two" when it ran.
        StepExecution.objects.filter(workflow=workflow, step_name="one").update(step_name="four")
        answer = command("geneva_predeploy", "--json")
        assert answer.status == 0
        (effect,) = [each for each in answer.json["effects"] if each["kind"] == "repeated"]
        assert (effect["step"], effect["workflows"]) == ("four", 1)
        assert command("geneva_predeploy", "--strict").status == 1

    def test_a_step_that_runs_now_is_deferred_and_not_undeclared(self, command: Callable[..., Any]) -> None:
        (workflow,) = started()
        StepExecution.objects.filter(workflow=workflow).update(step_name="gone", state="in_progress")
        Workflow.objects.filter(pk=workflow.pk).update(next_step_name="gone", state="performing")
        answer = command("geneva_predeploy", "--json")
        assert [each["kind"] for each in answer.json["effects"] if each["kind"] != "deletable"] == [
            "deferred"
        ]
        assert answer.status == 0

    def test_reports_what_a_gravestone_would_skip(self, command: Callable[..., Any]) -> None:
        (workflow,) = started()
        StepExecution.objects.filter(workflow=workflow).update(step_name="buried")
        Workflow.objects.filter(pk=workflow.pk).update(next_step_name="buried")
        answer = command("geneva_predeploy", "--json")
        (effect,) = [each for each in answer.json["effects"] if each["kind"] == "skipped"]
        assert (effect["step"], effect["workflows"], answer.status) == ("buried", 1, 0)

    def test_changes_nothing(self, command: Callable[..., Any]) -> None:
        (workflow,) = started()
        StepExecution.objects.filter(workflow=workflow).update(step_name="gone")
        before = list(StepExecution.objects.values()), list(Workflow.objects.values())
        command("geneva_predeploy")
        assert (list(StepExecution.objects.values()), list(Workflow.objects.values())) == before


def test_every_command_helps_and_refuses_an_unknown_database(command: Callable[..., Any]) -> None:
    FiveSteps.start  # noqa: B018 - the classes are loaded
    Heroless.start()
    for name in ("geneva_list", "geneva_removed_steps", "geneva_predeploy", "geneva_doctor"):
        answer = command(name, "--using", "nowhere")
        assert answer.status == 2, name
        assert "There are: default, other" in answer.err, name
