"""A filter that the list does not understand lists nothing, and is reported."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.test import Client

from geneva_drive import Workflow
from geneva_drive.models import StepExecution
from geneva_drive.testing import assert_state
from geneva_drive.workflows import BulkAction
from tests.admin.conftest import url
from tests.admin.test_workflow_page import LIST, text
from tests.management.test_action_commands import started, stumbled

pytestmark = pytest.mark.django_db

MANY = "geneva_drive_act_on_many"

WRONG = {
    "hero=zzz": "write app.model:key, for example shop.order:42",
    "hero=shop.order:1": "there is no model shop.order",
    "hero=testapp.order:abc": "is not a key of testapp.order",
    "hero=%20": "write app.model:key",
    "state=foo": "'foo' is not a valid value. Choose one of: ongoing, ready, performing, paused, finished, canceled.",
    "overdue=foo": "'foo' is not a valid value. Choose one of: any, long, day.",
    "waiting=foo": "'foo' is not a valid value. Choose one of: any, long.",
    "undeclared=foo": "'foo' is not a valid value. Choose one of: yes.",
    "created=foo": "'foo' is not a valid value. Choose one of: hour, day, week.",
    "moved=foo": "'foo' is not a valid value. Choose one of: hour, day, week.",
    "type=testapp.Nothing": "Write app_label.ClassName",
    "step=nowhere": "choose a type",
    "step=nowhere&type=testapp.FiveSteps": "is not a step of testapp.FiveSteps. It has one, two",
    "tried=nowhere": "choose a type",
    "error=NoSuchError": "Write an error's class: builtins.ValueError",
    "queue=nowhere": "Queues in use: default.",
    "step=a%00b": "NUL",
    "q=a%00b": "NUL",
    "id=abc": "there is no such filter. There are: state, type",
    "state__exact=paused": "there is no such filter",
    "executions__workflow__id=1": "there is no such filter",
    "e=1": "A filter in the URL",
    "state=ready&overdue=foo": "'foo' is not a valid value",
}
EACH = pytest.mark.parametrize("query", WRONG)


def listed(response: Any) -> set[Any]:
    return {each.pk for each in response.context["cl"].result_list}


@EACH
def test_a_wrong_value_lists_nothing_and_says_what_would_be_right(admin_client_: Client, query: str) -> None:
    started(2)
    stumbled()
    response = admin_client_.get(f"{url(LIST)}?{query}")
    text(response)
    assert listed(response) == set()
    shown = " ".join(str(each) for each in response.context["messages"])
    assert WRONG[query] in shown
    assert "nothing is listed" in shown


@EACH
def test_no_action_is_taken_on_all_that_match_a_wrong_value(admin_client_: Client, query: str) -> None:
    (workflow,) = started()
    stumbled()
    chosen = {"action": "cancel", ACTION_CHECKBOX_NAME: [workflow.pk]}
    for more in ({}, {"select_across": "1"}):
        assert admin_client_.post(f"{url(LIST)}?{query}", {**chosen, **more}).status_code == 400
    answer = {"across": "1", "query": query, "up_to": workflow.pk, "reason": "so"}
    assert admin_client_.post(url(MANY, "cancel"), answer).status_code == 400
    assert not BulkAction.objects.exists()
    assert_state(workflow, "ready")


def test_several_wrong_values_are_all_reported(admin_client_: Client) -> None:
    response = admin_client_.get(url(LIST), {"hero": "zzz", "overdue": "foo"})
    assert len(list(response.context["messages"])) == 2


def test_the_links_of_the_page_drop_an_unknown_filter(admin_client_: Client) -> None:
    response = admin_client_.get(url(LIST), {"nonsense": "1", "state": "ready"})
    assert "nonsense=1" not in text(response)


@pytest.mark.parametrize("query", ["hero=", "state=", "q=", "p=1", "all=", "o=1", "queue=default"])
def test_empty_and_known_parameters_are_accepted(admin_client_: Client, query: str) -> None:
    (workflow,) = started()
    response = admin_client_.get(f"{url(LIST)}?{query}")
    assert listed(response) == {workflow.pk}
    assert not list(response.context["messages"])


def test_names_that_only_rows_have_are_accepted(admin_client_: Client) -> None:
    (workflow,) = started()
    StepExecution.objects.filter(workflow=workflow).update(step_name="gone", queue="gone")
    Workflow.objects.filter(pk=workflow.pk).update(type="testapp.Gone", next_step_name="gone")
    for query in ("type=testapp.Gone", "step=gone", "tried=gone", "queue=gone"):
        response = admin_client_.get(f"{url(LIST)}?{query}")
        assert listed(response) == {workflow.pk}, query
        assert not list(response.context["messages"]), query


def test_a_page_beyond_the_last_is_the_last(admin_client_: Client) -> None:
    started(51)
    response = admin_client_.get(url(LIST), {"p": "9"})
    assert response.context["cl"].page_num == 2
    assert len(listed(response)) == 1
