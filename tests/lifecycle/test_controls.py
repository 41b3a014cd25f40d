"""Operator actions: what each does in each state, and which rows it leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.template import Context, Template

from geneva_drive import InvalidStateError, Workflow, clock
from geneva_drive.testing import run_to_end
from tests.execution.support import active, everything, history
from tests.lifecycle.controls import (
    CONTROLS,
    THREE_WAITS,
    TWO_CANCELED,
    TWO_FAILED,
    TWO_RUNS,
    TWO_SKIPPED,
    TWO_WAITS,
    Moved,
    canceled,
    failed,
    finished,
    pause_requested,
    paused,
    performing,
    ready,
)

pytestmark = pytest.mark.django_db

# The workflow's state and next step, and the states of the second step's execution and the one after.
Expected = tuple[str, str | None, list[tuple[str, str, str | None]]]

DONE: dict[tuple[Callable[[], Workflow], str], Expected] = {
    (ready, "pause"): ("paused", "two", [TWO_WAITS]),
    (ready, "skip"): ("ready", "three", [TWO_SKIPPED, THREE_WAITS]),
    (ready, "cancel"): ("canceled", None, [TWO_CANCELED]),
    (paused, "resume"): ("ready", "two", [TWO_WAITS]),
    (paused, "resume_at"): ("ready", "three", [TWO_CANCELED, THREE_WAITS]),
    (paused, "skip"): ("ready", "three", [TWO_SKIPPED, THREE_WAITS]),
    (paused, "cancel"): ("canceled", None, [TWO_CANCELED]),
    (failed, "resume"): ("ready", "two", [TWO_FAILED, TWO_WAITS]),
    (failed, "resume_at"): ("ready", "three", [TWO_FAILED, THREE_WAITS]),
    (failed, "skip"): ("ready", "three", [TWO_FAILED, THREE_WAITS]),
    (failed, "cancel"): ("canceled", None, [TWO_FAILED]),
    (performing, "pause"): ("performing", "two", [TWO_RUNS]),
    (performing, "cancel"): ("canceled", None, [TWO_RUNS]),
    (pause_requested, "pause"): ("performing", "two", [TWO_RUNS]),
    (pause_requested, "resume"): ("performing", "two", [TWO_RUNS]),
    (pause_requested, "cancel"): ("canceled", None, [TWO_RUNS]),
}
STATES = [ready, paused, failed, performing, pause_requested, finished, canceled]
REFUSED = [(state, word) for state in STATES for word in CONTROLS if (state, word) not in DONE]


def _name(value: Any) -> str | None:
    return getattr(value, "__name__", None)


@pytest.mark.parametrize(("state", "word"), list(DONE), ids=_name)
def test_a_control_changes_the_rows_and_the_instance(state: Callable[[], Workflow], word: str) -> None:
    becomes, points_at, rows = DONE[state, word]
    workflow = state()
    before = (workflow.state, workflow.next_step_name)

    assert CONTROLS[word](workflow) is workflow

    shown = (workflow.state, workflow.next_step_name, workflow.current_step_name, workflow.pause_requested_at)
    workflow.refresh_from_db()
    assert shown == (
        workflow.state,
        workflow.next_step_name,
        workflow.current_step_name,
        workflow.pause_requested_at,
    )
    assert (workflow.state, workflow.next_step_name) == (becomes, points_at)
    assert history(workflow)[1:] == rows
    for row in workflow.executions.all():
        assert (row.finished_at is not None) is (row.state not in ("scheduled", "in_progress"))
        # While a step runs, this marks that it should stop; a loop checks it at its next item.
        wanted_to_stop = workflow.pause_requested_at is not None or workflow.state == "canceled"
        held_back = row.state == "scheduled" and workflow.state == "paused"
        assert row.on_hold is (held_back or (row.state == "in_progress" and wanted_to_stop))
    note = workflow.operator_actions.order_by("pk").last()
    assert note is not None
    assert (note.action, note.actor, note.reason) == (word, "eve", "r")
    assert (note.before["state"], note.before["next_step"]) == before
    assert (note.after["state"], note.after["next_step"]) == (becomes, points_at)


@pytest.mark.parametrize(("state", "word"), REFUSED, ids=_name)
def test_a_control_in_a_wrong_state_is_refused_and_changes_nothing(
    state: Callable[[], Workflow], word: str
) -> None:
    workflow = state()
    actions = workflow.operator_actions.count()
    before = everything(workflow)

    with pytest.raises(InvalidStateError, match=str(workflow.state)):
        CONTROLS[word](workflow)

    assert everything(workflow) == before
    assert workflow.operator_actions.count() == actions


@pytest.mark.parametrize("word", CONTROLS)
def test_the_state_is_checked_again_under_the_lock(word: str) -> None:
    stale = ready() if word in ("pause", "skip", "cancel") else paused()
    Workflow.objects.get(pk=stale.pk).cancel()
    before = everything(stale)

    with pytest.raises(InvalidStateError, match="canceled"):
        CONTROLS[word](stale)

    assert everything(stale) == before


@pytest.mark.parametrize("word", CONTROLS)
def test_a_deleted_or_unsaved_row_is_reported(word: str) -> None:
    workflow = ready()
    stale = Workflow.objects.get(pk=workflow.pk)
    Workflow.objects.all().delete()

    with pytest.raises(InvalidStateError, match="no longer exists"):
        CONTROLS[word](stale)
    with pytest.raises(InvalidStateError, match="not started yet"):
        CONTROLS[word](Moved())


@pytest.mark.parametrize("by", ["user", "text", "long text", "none"])
def test_the_actor_can_be_a_user_a_string_or_empty(by: str) -> None:
    user = get_user_model().objects.create(username="grace")
    names: dict[str, Any] = {"user": user, "text": "the night shift", "long text": "x" * 400, "none": None}
    workflow = ready()

    workflow.pause(by=names[by], reason="why \N{PARTY POPPER}")

    note = workflow.operator_actions.get()
    assert note.actor == {"user": "grace", "text": "the night shift", "long text": "x" * 255, "none": ""}[by]
    assert note.reason == "why \N{PARTY POPPER}"
    assert clock.utc(note.created_at) <= clock.now("default")


def test_resume_at_records_the_step_and_a_pause_request_is_recorded() -> None:
    workflow = paused()
    workflow.resume_at("three")
    requested = performing()
    requested.pause()

    note = workflow.operator_actions.order_by("pk").last()
    assert note is not None
    assert note.after["step"] == "three"
    assert requested.operator_actions.get().after["pause_requested"] is True


@pytest.mark.parametrize(
    "verb",
    [
        "start", "get_or_start", "start_many",
        "pause", "resume", "resume_at", "skip", "cancel", "reschedule", "signal", "save", "delete",
    ],
)  # fmt: skip
@pytest.mark.parametrize("make", [ready, paused])
def test_templates_cannot_call_verbs(make: Callable[[], Workflow], verb: str) -> None:
    workflow = make()
    before = everything(workflow)
    shown = Template(f"<{{{{ workflow.{verb} }}}}>").render(Context({"workflow": workflow}))
    assert shown == "<>"
    assert everything(workflow) == before
    assert Workflow.objects.count() == 1


def test_next_step_name_is_always_the_active_step_or_what_resume_would_create() -> None:
    workflow = Moved.start()
    for act in ("pause", "resume", "skip", "pause", "skip", "pause", "resume"):
        CONTROLS[act](workflow)
        assert workflow.next_step_name == active(workflow).step_name
    run_to_end(workflow)
    assert workflow.next_step_name is None
    broken = failed()
    assert broken.next_step_name == "two"
    broken.resume()
    assert active(broken).step_name == "two"
