"""What the filters mean: which states they imply, and which typing errors they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from geneva_drive import Workflow
from geneva_drive.testing import assert_state
from tests.management.test_action_commands import started, stumbled
from tests.management.test_dry_runs import gallery

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.django_db

READY, PAUSED, PERFORMING, ASKED = range(4)


@pytest.mark.parametrize(
    ("action", "meant"),
    [
        (("geneva_pause",), {READY, PERFORMING, ASKED}),
        (("geneva_resume",), {PAUSED, ASKED}),
        (("geneva_resume_at", "two"), {PAUSED}),
        (("geneva_skip",), {READY, PAUSED}),
        (("geneva_cancel",), {READY, PAUSED, PERFORMING, ASKED}),
        (("geneva_reschedule", "now"), {READY, PAUSED}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_filters_imply_the_states_in_which_it_is_possible(
    command: Callable[..., Any], action: tuple[str, ...], meant: set[int]
) -> None:
    workflows = gallery()
    lost = {each.pk for each in workflows[6:8]}  # they stand at a step that is not declared

    told = command(*action, "--type", "testapp.FiveSteps", "--dry-run", "--json").json
    assert set(told["ids"]) - lost == {workflows[place].pk for place in meant}
    assert {each["id"] for each in told["failed"]} <= lost

    answer = command(*action, "--type", "testapp.FiveSteps", "--no-input", "--json")
    assert {each["id"] for each in answer.json["results"]} - lost == {workflows[place].pk for place in meant}


def test_a_state_that_is_named_is_taken_at_its_word(command: Callable[..., Any]) -> None:
    (workflow,) = started()
    workflow.cancel()
    answer = command("geneva_pause", "--state", "canceled", "--no-input")
    assert (answer.status, "0 paused, 1 failed." in answer.out) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--type", "shop.Nope"], "--type shop.Nope: no class and no workflow has this type. Declared are: "),
        (["--step", "nope"], "--step nope: no class has a step of this name, and no workflow is at one."),
        (["--type", "testapp.FiveSteps", "--step", "third"], "Declared are: one, two, buried, three"),
    ],
)
@pytest.mark.parametrize("name", ["geneva_cancel", "geneva_list"])
def test_typing_errors_are_refused(
    command: Callable[..., Any], name: str, arguments: list[str], message: str
) -> None:
    workflow = stumbled()
    answer = command(name, *arguments)
    assert (answer.status, answer.out) == (2, "")
    assert message in answer.err
    assert_state(workflow, "paused")


def test_what_only_rows_know_is_no_typing_error(command: Callable[..., Any]) -> None:
    at_step, of_class = started(2)
    Workflow.objects.filter(pk=at_step.pk).update(next_step_name="gone")
    Workflow.objects.filter(pk=of_class.pk).update(type="testapp.Gone")
    for arguments, wanted in [
        (["--step", "gone"], [at_step.pk]),
        (["--type", "testapp.FiveSteps", "--step", "gone"], [at_step.pk]),
        (["--type", "testapp.Gone"], [of_class.pk]),
        (["--type", "testapp.Gone", "--step", "one"], [of_class.pk]),
        (["--step", "buried"], []),
    ]:
        answer = command("geneva_cancel", *arguments, "--dry-run", "--json")
        assert (answer.status, answer.json["ids"]) == (0, wanted), arguments


def test_an_error_that_nothing_ended_with_is_told(command: Callable[..., Any]) -> None:
    stumbled()
    answer = command("geneva_resume", "--error", "ValueErr", "--no-input")
    assert (answer.status, answer.out.strip()) == (0, "0 resumed, 0 failed.")
    assert "No attempt has failed with an error of the class 'ValueErr'." in answer.err
    assert command("geneva_resume", "--error", "ValueError", "--no-input").err == ""
