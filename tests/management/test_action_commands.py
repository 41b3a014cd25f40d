"""The commands that do something to workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from geneva_drive import Workflow, step
from geneva_drive.models import OperatorAction, StepExecution
from geneva_drive.testing import assert_state, assert_step, run_next_step, run_to_end
from tests.testapp.models import Order
from tests.testapp.workflows import FiveSteps

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.django_db


class Stumbling(Workflow):
    """Its second step fails."""

    may_proceed_without_hero = True

    class Meta:
        app_label = "testapp"

    @step
    def first(self) -> None: ...

    @step
    def second(self) -> None:
        raise ValueError("stumbled")

    @step
    def third(self) -> None: ...


def started(count: int = 1) -> list[FiveSteps]:
    return [FiveSteps.start(Order.objects.create()) for _ in range(count)]


def stumbled() -> Stumbling:
    workflow = Stumbling.start()
    run_to_end(workflow, raise_errors=False)
    return workflow


@pytest.mark.parametrize(
    ("name", "arguments", "before", "after"),
    [
        ("geneva_pause", [], None, "paused"),
        ("geneva_resume", [], "pause", "ready"),
        ("geneva_resume_at", ["four"], "pause", "ready"),
        ("geneva_skip", [], None, "ready"),
        ("geneva_cancel", [], None, "canceled"),
        ("geneva_reschedule", ["now"], None, "ready"),
    ],
)
def test_an_action_on_ids_moves_them_and_writes_down_who_and_why(
    command: Callable[..., Any], name: str, arguments: list[str], before: str | None, after: str
) -> None:
    chosen, other = started(2)
    for workflow in (chosen, other):
        if before is not None:
            getattr(workflow, before)()
    untouched = other.state

    answer = command(name, *arguments, chosen.pk, "--by", "ada", "--reason", "she said so")

    assert answer.status == 0
    assert answer.out.startswith("1 ")
    assert "0 failed" in answer.out
    assert_state(chosen, after)
    assert_state(other, untouched)
    action = OperatorAction.objects.filter(workflow=chosen).latest("pk")
    assert (action.action, action.actor, action.reason) == (
        name.removeprefix("geneva_"),
        "ada",
        "she said so",
    )


def test_one_that_fails_is_named_and_the_others_are_done(command: Callable[..., Any]) -> None:
    ready, ended = started(2)
    ended.cancel()

    answer = command("geneva_pause", ready.pk, ended.pk, 10**9)

    assert answer.status == 1
    assert "1 paused, 2 failed." in answer.out
    assert f"{ended} is canceled: only a ready or performing workflow can be paused." in answer.err
    assert f"{ended.pk}: " not in answer.err  # the id is said once
    assert f"{10**9}: there is no workflow" in answer.err
    assert_state(ready, "paused")


def test_an_id_that_is_given_twice_counts_once(command: Callable[..., Any]) -> None:
    (workflow,) = started()
    answer = command("geneva_cancel", workflow.pk, workflow.pk)
    assert (answer.status, answer.out.strip()) == (0, "1 canceled, 0 failed.")


def test_what_was_done_is_named(command: Callable[..., Any]) -> None:
    (workflow,) = started()
    assert command("geneva_skip", workflow.pk).out.strip() == "1 skipped a step, 0 failed."


@pytest.mark.parametrize("name", ["geneva_skip", "geneva_resume_at", "geneva_pause"])
def test_without_workflows_the_right_help_is_named(command: Callable[..., Any], name: str) -> None:
    answer = command(name, *(["two"] if name == "geneva_resume_at" else []))
    assert (answer.status, f"see {name} --help." in answer.err) == (2, True)


def test_ids_are_not_called_required(command: Callable[..., Any]) -> None:
    answer = command("geneva_resume_at")
    assert "required: AT" in answer.err
    assert "ID" not in answer.err


def test_a_question_begins_with_a_capital_and_counts(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = started(2)
    second.cancel()
    asked: list[str] = []

    def answer_no(question: str) -> str:
        asked.append(question)
        return "n"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", answer_no)
    answer = command("geneva_pause", "--type", "testapp.FiveSteps")
    assert asked == ["Pause 1 workflow(s)? [y/N] "]
    assert (answer.status, answer.err) == (2, "Nothing was done.")
    assert_state(first, "ready")


def test_json_tells_each_result(command: Callable[..., Any]) -> None:
    (workflow,) = started()
    answer = command("geneva_cancel", workflow.pk, "--json")
    assert answer.json == {
        "done": 1,
        "failed": 0,
        "results": [{"id": workflow.pk, "error": None, "state": "canceled"}],
    }


def test_resume_at_an_unknown_step_fails_with_the_names_that_there_are(command: Callable[..., Any]) -> None:
    (workflow,) = started()
    workflow.pause()
    answer = command("geneva_resume_at", "nowhere", workflow.pk)
    assert answer.status == 1
    assert "not defined" in answer.err
    assert "one, two, three, four, five" in answer.err
    assert_state(workflow, "paused")


def test_undeclared_ones_continue_at_another_step_after_a_pause_with_the_same_filters(
    command: Callable[..., Any],
) -> None:
    ready, paused = started(2)
    paused.pause()
    keys = [ready.pk, paused.pk]
    StepExecution.objects.filter(workflow__in=keys).update(step_name="gone")
    Workflow.objects.filter(pk__in=keys).update(next_step_name="gone")

    answer = command("geneva_skip", ready.pk)
    assert (answer.status, "Options: pause(), then resume_at()" in answer.err) == (1, True)
    assert command("geneva_pause", "--undeclared", "--state", "ready", "--no-input").status == 0
    assert command("geneva_resume_at", "four", "--undeclared", "--no-input").status == 0

    for workflow in (ready, paused):
        assert_state(run_to_end(workflow), "finished")


def test_a_failed_step_is_retried_by_resume(command: Callable[..., Any]) -> None:
    workflow = stumbled()
    assert_state(workflow, "paused")
    assert command("geneva_resume", workflow.pk).status == 0
    assert_state(workflow, "ready")
    assert_step(workflow, "second", "scheduled")


class TestFilters:
    def test_choose_by_type_state_step_hero_and_error(self, command: Callable[..., Any]) -> None:
        first, second = started(2)
        run_next_step(second)
        failed = stumbled()
        cases = [
            (["--type", "testapp.FiveSteps"], {first.pk, second.pk}),
            (["--state", "paused"], {failed.pk}),
            (["--state", "paused", "--state", "ready"], {first.pk, second.pk, failed.pk}),
            (["--step", "two"], {second.pk}),
            (["--hero", f"testapp.order:{first.hero_id}"], {first.pk}),
            (["--error", "ValueError"], {failed.pk}),
            (["--error", "builtins.ValueError"], {failed.pk}),
            (["--error", "KeyError"], set()),
            (["--queue", "default", "--type", "testapp.FiveSteps"], {first.pk, second.pk}),
            (["--queue", "other"], set()),
            (["--overdue", "--step", "one"], {first.pk}),
            (["--overdue", "2h"], set()),
            (["--undeclared"], set()),
        ]
        for arguments, wanted in cases:
            answer = command("geneva_cancel", *arguments, "--dry-run", "--json")
            assert set(answer.json["ids"]) == wanted, arguments

    def test_find_what_this_code_does_not_declare(self, command: Callable[..., Any]) -> None:
        at_step, of_class, _fine = started(3)
        Workflow.objects.filter(pk=at_step.pk).update(next_step_name="gone")
        Workflow.objects.filter(pk=of_class.pk).update(type="testapp.Gone")
        answer = command("geneva_pause", "--undeclared", "--dry-run", "--json")
        assert set(answer.json["ids"]) == {at_step.pk, of_class.pk}

    def test_act_without_a_question_with_no_input(self, command: Callable[..., Any]) -> None:
        chosen = started(3)
        answer = command("geneva_pause", "--type", "testapp.FiveSteps", "--no-input")
        assert (answer.status, answer.out.strip()) == (0, "3 paused, 0 failed.")
        for workflow in chosen:
            assert_state(workflow, "paused")

    def test_a_dry_run_changes_nothing(self, command: Callable[..., Any]) -> None:
        (workflow,) = started()
        answer = command("geneva_cancel", "--type", "testapp.FiveSteps", "--dry-run")
        assert "Would cancel 1 workflow(s)." in answer.out
        assert_state(workflow, "ready")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Which workflows?"),
        (["1", "--state", "paused"], "not both"),
        (["one"], "not a workflow id"),
        (["--hero", "order"], "app.model:key"),
        (["--hero", "shop.nothing:1"], "no model"),
        (["--hero", "testapp.order:x"], "not a key"),
        (["--using", "nowhere", "1"], "no such database"),
        (["--state", "paused"], "no terminal to confirm"),
    ],
)
def test_misuse_is_told_with_status_2_and_nothing_is_done(
    command: Callable[..., Any], arguments: list[str], message: str
) -> None:
    workflow = stumbled()
    answer = command("geneva_cancel", *arguments)
    assert answer.status == 2
    assert message in answer.err
    assert_state(workflow, "paused")
