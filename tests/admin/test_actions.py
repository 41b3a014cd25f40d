"""The pages say beforehand what an action will be refused for, in the words of the refusal."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext

from geneva_drive import Workflow
from geneva_drive.admin.actions import ACTIONS, Action
from geneva_drive.models import OperatorAction, StepExecution
from geneva_drive.testing import assert_state, run_next_step, run_to_end
from tests.admin.conftest import url
from tests.admin.test_views import ACT, DATA, MANY
from tests.admin.test_workflow_page import LIST, PAGE, text
from tests.management.test_action_commands import started, stumbled
from tests.reports.test_selection import Waiting

pytestmark = pytest.mark.django_db


def ready() -> Workflow:
    return started()[0]


def paused() -> Workflow:
    (workflow,) = started()
    workflow.pause()
    return workflow


def canceled() -> Workflow:
    (workflow,) = started()
    workflow.cancel()
    return workflow


def finished() -> Workflow:
    return run_to_end(started()[0])


def performing() -> Workflow:
    (workflow,) = started()
    StepExecution.objects.filter(workflow=workflow).update(state="in_progress", started_at=F("created_at"))
    Workflow.objects.filter(pk=workflow.pk).update(state="performing")
    return workflow


def pausing() -> Workflow:
    workflow = performing()
    Workflow.objects.get(pk=workflow.pk).pause()
    return workflow


def waiting() -> Workflow:
    workflow = Waiting.start()
    run_next_step(workflow)
    return workflow


def lost() -> Workflow:
    """Return a workflow that is paused at an undeclared step."""
    workflow = paused()
    StepExecution.objects.filter(workflow=workflow).update(step_name="gone")
    Workflow.objects.filter(pk=workflow.pk).update(next_step_name="gone")
    return workflow


def of_a_lost_class() -> Workflow:
    workflow = paused()
    Workflow.objects.filter(pk=workflow.pk).update(type="testapp.Gone")
    return workflow


KINDS = (
    ready,
    paused,
    canceled,
    finished,
    performing,
    pausing,
    waiting,
    stumbled,
    lost,
    of_a_lost_class,
)
BY_NAME = pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
COUNTED = [action for action in ACTIONS if action.name != "resume_at"]  # that page has a test of its own
BY_KIND = pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)


def errors(response: Any) -> list[str]:
    return [str(each) for each in response.context["messages"] if each.level_tag == "error"]


@BY_NAME
@BY_KIND
def test_the_page_that_asks_gives_the_same_refusal_as_the_action(
    admin_client_: Client, action: Action, make: Any
) -> None:
    workflow = make()
    before = Workflow.objects.values("state", "next_step_name").get(pk=workflow.pk)
    actions = OperatorAction.objects.count()
    asked = admin_client_.get(url(ACT, workflow.pk, action.name))
    page = text(asked)
    assert Workflow.objects.values("state", "next_step_name").get(pk=workflow.pk) == before
    assert OperatorAction.objects.count() == actions
    many = admin_client_.post(url(LIST), {"action": action.name, ACTION_CHECKBOX_NAME: [workflow.pk]})
    reason = asked.context.get("impossible")
    assert bool(many.context.get("impossible")) == bool(reason)
    assert ('<div class="submit-row">' in page) == (not reason)
    assert ('<div class="submit-row">' in text(many)) == (not reason)

    data = {**DATA.get(action.name, {})}
    if action.name == "resume_at" and make in (waiting, stumbled):
        data["step"] = Workflow.objects.get(pk=workflow.pk).next_step_name or ""
    refused = errors(admin_client_.post(url(ACT, workflow.pk, action.name), data, follow=True))
    if not reason:
        assert refused == []
    elif action.name == "signal":
        assert reason in refused[0]
    elif make is not of_a_lost_class or action.name != "resume_at":
        assert refused == [f"{action.title}: refused. {reason}"]


def test_an_invalid_form_shows_the_refusal_too(admin_client_: Client) -> None:
    response = admin_client_.post(url(ACT, canceled().pk, "cancel"))
    assert "is canceled: only an ongoing workflow can be canceled." in text(response)


class TestMany:
    def ask(self, client: Client, action: str, *chosen: Workflow, across: bool = False) -> Any:
        data: dict[str, Any] = {"action": action, ACTION_CHECKBOX_NAME: [each.pk for each in chosen]}
        return client.post(url(LIST), {**data, "select_across": "1"} if across else data)

    @pytest.mark.parametrize("across", [False, True])
    def test_the_page_says_how_many_will_be_refused(self, admin_client_: Client, across: bool) -> None:
        one, others = paused(), started(2)
        response = self.ask(admin_client_, "resume", one, *others, across=across)
        page = " ".join(text(response).split())
        assert "Possible for 1 of 3." in page
        assert "2 will be refused: only a paused workflow can be resumed. 2 ready;" in page
        for other in others:
            assert url(PAGE, other.pk) in page
        assert 'value="Resume: 3"' in page

    @pytest.mark.parametrize("action", COUNTED, ids=lambda action: action.name)
    def test_as_many_are_refused_as_the_page_said(self, admin_client_: Client, action: Action) -> None:
        chosen = [make() for make in KINDS]
        response = self.ask(admin_client_, action.name, *chosen)
        said = response.context["refused_count"] + response.context["undeclared"]
        assert said + response.context["able"] == len(chosen)
        assert said > 0
        data = {**DATA.get(action.name, {}), ACTION_CHECKBOX_NAME: [each.pk for each in chosen]}
        (refused,) = errors(admin_client_.post(url(MANY, action.name), data, follow=True))
        assert refused.startswith(f"{said} failed: ")

    def test_nothing_is_asked_if_all_will_be_refused(self, admin_client_: Client) -> None:
        response = self.ask(admin_client_, "resume", *started(2))
        assert "No chosen workflow allows this." in text(response)
        assert "only a paused workflow can be resumed" in text(response)
        assert "submit-row" not in text(response)

    def test_undeclared_steps_are_counted_separately(self, admin_client_: Client) -> None:
        response = self.ask(admin_client_, "resume", lost(), paused(), of_a_lost_class())
        assert (response.context["able"], response.context["undeclared"]) == (1, 2)
        assert "2 will be refused: this code does not declare the steps where they stand" in text(response)

    def test_many_take_as_many_queries_as_few(self, admin_client_: Client) -> None:
        def queries() -> int:
            with CaptureQueriesContext(connection) as captured:
                text(self.ask(admin_client_, "resume", one, across=True))
            return len(captured)

        one = paused()
        started(2)
        queries()
        few = queries()
        for _ in range(10):
            paused()
        started(10)
        assert queries() == few
        assert_state(one, "paused")
