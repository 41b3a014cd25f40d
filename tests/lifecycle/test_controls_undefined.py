"""Controls on rows whose step or class is undeclared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from geneva_drive import StepExecution, StepNotDefinedError, Workflow
from geneva_drive.testing import assert_state, run_to_end
from tests.execution.support import everything
from tests.lifecycle.controls import CONTROLS, failed, paused, ready

pytestmark = pytest.mark.django_db


def undefined(state: Callable[[], Workflow]) -> Workflow:
    workflow = state()
    StepExecution.objects.filter(workflow_id=workflow.pk, step_name="two").update(step_name="from_newer_code")
    Workflow.objects.filter(pk=workflow.pk).update(next_step_name="from_newer_code")
    workflow.refresh_from_db()
    return workflow


@pytest.mark.parametrize(
    ("state", "word"),
    [(paused, "resume"), (failed, "resume"), (ready, "skip"), (paused, "skip"), (failed, "skip")],
)
def test_an_undeclared_step_is_refused_with_the_options_and_changes_nothing(
    state: Callable[[], Workflow], word: str
) -> None:
    workflow = undefined(state)
    before = everything(workflow)

    with pytest.raises(StepNotDefinedError) as raised:
        CONTROLS[word](workflow)

    for part in (
        "from_newer_code",
        "one, two, three",
        "resume_at()",
        "cancel()",
        "from_newer_code = removed_step()",
    ):
        assert part in str(raised.value)
    # Only a paused workflow can be resumed at a step.
    assert ("pause(), then resume_at()" in str(raised.value)) == (state is ready)
    assert everything(workflow) == before


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (paused, ["resume_at"]),
        (failed, ["resume_at"]),
        (ready, ["pause", "resume_at"]),
        (ready, ["cancel"]),
    ],
)
def test_the_options_for_an_undeclared_step_work(state: Callable[[], Workflow], words: list[str]) -> None:
    workflow = undefined(state)

    for word in words:
        CONTROLS[word](workflow)

    if words[-1] == "resume_at":
        run_to_end(workflow)
        assert_state(workflow, "finished")
    else:
        assert_state(workflow, "canceled")


@pytest.mark.parametrize(
    ("word", "works"), [("pause", True), ("cancel", True), ("skip", False), ("resume", False)]
)
def test_a_row_of_an_undeclared_class_can_be_paused_and_canceled(word: str, works: bool) -> None:
    workflow = paused() if word == "resume" else ready()
    Workflow.objects.filter(pk=workflow.pk).update(type="testapp.FromNewerCode")
    stored = Workflow.objects.get(pk=workflow.pk)

    if works:
        CONTROLS[word](stored)
        assert stored.state in ("paused", "canceled")
    else:
        with pytest.raises(StepNotDefinedError) as raised:
            CONTROLS[word](stored)
        # The class itself is undeclared, so there is no step to continue at.
        assert "declares no workflow class 'testapp.FromNewerCode'" in str(raised.value)
        assert "former_types" in str(raised.value)
        assert "cancel()" in str(raised.value)
        assert "resume_at()" not in str(raised.value)
