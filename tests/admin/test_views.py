"""The actions: permissions, the pages that ask, and what each action does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.test import Client

from geneva_drive import Workflow
from geneva_drive.admin.actions import ACTIONS, Action
from geneva_drive.models import OperatorAction, StepExecution
from geneva_drive.testing import assert_state, assert_step, run_next_step, run_to_end
from geneva_drive.workflows import BulkAction
from tests.admin.conftest import url
from tests.admin.test_workflow_page import LIST, PAGE, text
from tests.management.test_action_commands import started, stumbled
from tests.testapp.models import Order
from tests.testapp.workflows import FiveSteps

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.django_db

ACT, MANY = "geneva_drive_act", "geneva_drive_act_on_many"
DATA: dict[str, dict[str, str]] = {
    "resume_at": {"step": "one", "reason": "so"},
    "skip": {"reason": "so"},
    "cancel": {"reason": "so"},
    "reschedule": {"at_0": "2031-01-01", "at_1": "12:00:00"},
    "signal": {"name": "ping", "payload": "{}"},
}
BY_NAME = pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)


def fitting(action: Action) -> Workflow:
    """Make a workflow that allows the action."""
    (workflow,) = started()
    if action.name in ("resume", "resume_at"):
        workflow.pause()
    return workflow


class TestPermissions:
    @BY_NAME
    def test_each_action_needs_its_own_permission(
        self, client_with: Callable[..., Client], action: Action
    ) -> None:
        workflow = fitting(action)
        state, actions = workflow.state, OperatorAction.objects.count()
        others = {each.permission for each in ACTIONS} - {action.permission}
        django_own = {"add_workflow", "change_workflow", "delete_workflow"}
        client = client_with("view_workflow", *others, *django_own)
        data = {**DATA.get(action.name, {}), ACTION_CHECKBOX_NAME: workflow.pk}

        assert client.get(url(ACT, workflow.pk, action.name)).status_code == 403
        assert client.post(url(ACT, workflow.pk, action.name), data).status_code == 403
        assert client.post(url(MANY, action.name), data).status_code == 403
        assert_state(workflow, state)
        assert OperatorAction.objects.count() == actions

        client = client_with("view_workflow", action.permission)
        response = client.post(url(ACT, workflow.pk, action.name), data)
        assert response.status_code == 302
        assert OperatorAction.objects.count() == actions + 1

    def test_django_s_own_permissions_grant_nothing(self, client_with: Callable[..., Client]) -> None:
        (workflow,) = started()
        client = client_with("add_workflow", "change_workflow", "delete_workflow")
        for name, arguments in [
            (LIST, []),
            (PAGE, [workflow.pk]),
            ("geneva_drive_overview", []),
            ("geneva_drive_removed_steps", []),
            ("geneva_drive_start", []),
        ]:
            assert client.get(url(name, *arguments)).status_code == 403, name

    def test_view_permission_alone_offers_no_action(self, client_with: Callable[..., Client]) -> None:
        workflow = stumbled()
        client = client_with("view_workflow")
        page = text(client.get(url(PAGE, workflow.pk)))
        assert "gd-tools" not in page
        listed = text(client.get(url(LIST)))
        assert 'name="action"' not in listed
        assert "Start a workflow" not in listed

    def test_anonymous_visitors_are_sent_to_log_in(self, client: Client) -> None:
        workflow = stumbled()
        addresses = [url(LIST), url(PAGE, workflow.pk), url(ACT, workflow.pk, "cancel")]
        for address in addresses:
            response = client.get(address)
            assert response.status_code == 302
            assert "login" in response["Location"]
        assert client.post(url(ACT, workflow.pk, "cancel")).status_code == 302
        assert_state(workflow, "paused")

    @BY_NAME
    def test_a_get_changes_nothing(self, admin_client_: Client, action: Action) -> None:
        workflow = fitting(action)
        state = workflow.state
        before = OperatorAction.objects.count()
        response = admin_client_.get(url(ACT, workflow.pk, action.name), DATA.get(action.name, {}))
        assert response.status_code == 200
        assert admin_client_.get(url(MANY, action.name)).status_code == 405
        assert_state(workflow, state)
        assert OperatorAction.objects.count() == before

    def test_a_post_without_the_csrf_token_changes_nothing(self, client_with: Callable[..., Client]) -> None:
        (workflow,) = started()
        client = client_with("view_workflow", "cancel_workflow", csrf=True)
        assert client.post(url(ACT, workflow.pk, "cancel")).status_code == 403
        assert client.post(url(MANY, "cancel"), {ACTION_CHECKBOX_NAME: workflow.pk}).status_code == 403
        assert_state(workflow, "ready")
        page = text(client.get(url(ACT, workflow.pk, "cancel")))
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token is not None
        assert (
            client.post(
                url(ACT, workflow.pk, "cancel"), {"csrfmiddlewaretoken": token[1], "reason": "so"}
            ).status_code
            == 302
        )
        assert_state(workflow, "canceled")

    def test_rows_cannot_be_edited_added_or_deleted(self, admin_client_: Client) -> None:
        (workflow,) = started()
        assert admin_client_.post(url(PAGE, workflow.pk), {"state": "finished"}).status_code == 403
        assert admin_client_.get(url("geneva_drive_workflow_add")).status_code == 403
        assert (
            admin_client_.post(url("geneva_drive_workflow_delete", workflow.pk), {"post": "yes"}).status_code
            == 403
        )
        assert_state(workflow, "ready")


class TestOne:
    def test_is_done_and_recorded_with_user_and_reason(self, admin_client_: Client) -> None:
        workflow = stumbled()
        response = admin_client_.post(
            url(ACT, workflow.pk, "resume"), {"reason": "the bank is back"}, follow=True
        )
        assert "Resume: done." in text(response)
        assert "the bank is back" in text(response)
        action = OperatorAction.objects.get(workflow=workflow)
        assert (action.actor, action.reason, action.action) == ("root", "the bank is back", "resume")
        assert_step(workflow, "second", "scheduled")

    def test_a_refusal_is_shown_and_nothing_changes(self, admin_client_: Client) -> None:
        (workflow,) = started()
        workflow.cancel()
        response = admin_client_.post(url(ACT, workflow.pk, "pause"), follow=True)
        page = text(response)
        assert (
            f"Pause: refused. {workflow} is canceled: only a ready or performing workflow can be paused."
            in page
        )

    def test_run_now_and_reschedule_move_the_scheduled_step(self, admin_client_: Client) -> None:
        (workflow,) = started()
        admin_client_.post(url(ACT, workflow.pk, "reschedule"), {"at_0": "2031-05-06", "at_1": "07:08:00"})
        moved = workflow.executions.get().scheduled_for
        assert (moved.year, moved.month, moved.day) == (2031, 5, 6)
        admin_client_.post(url(ACT, workflow.pk, "run_now"))
        assert workflow.executions.get().scheduled_for.year < 2031
        assert [each.action for each in OperatorAction.objects.order_by("pk")] == ["reschedule", "reschedule"]

    @pytest.mark.parametrize("payload", ["{", '{"a": NaN}', '"\\u0000"'])
    def test_a_payload_that_cannot_be_stored_is_refused_in_the_form(
        self, admin_client_: Client, payload: str
    ) -> None:
        (workflow,) = started()
        response = admin_client_.post(url(ACT, workflow.pk, "signal"), {"name": "ping", "payload": payload})
        assert response.context["form"].errors["payload"]
        assert workflow.signals.count() == 0

    def test_a_run_whose_worker_is_dead_is_canceled_at_once(self, admin_client_: Client) -> None:
        (workflow,) = started()
        StepExecution.objects.filter(workflow=workflow).update(state="in_progress")
        Workflow.objects.filter(pk=workflow.pk).update(state="performing")
        admin_client_.post(url(ACT, workflow.pk, "cancel"), {"reason": "its host burned down"})
        assert_state(workflow, "canceled")

    def test_a_run_of_a_class_that_is_gone_can_be_canceled(self, admin_client_: Client) -> None:
        (workflow,) = started()
        Workflow.objects.filter(pk=workflow.pk).update(type="testapp.Gone")
        admin_client_.post(url(ACT, workflow.pk, "cancel"), {"reason": "it is gone"})
        assert Workflow.objects.get(pk=workflow.pk).state == "canceled"

    def test_what_cannot_be_undone_needs_a_reason(self, admin_client_: Client) -> None:
        (workflow,) = started()
        response = admin_client_.post(url(ACT, workflow.pk, "cancel"))
        assert response.context["form"].errors["reason"]
        assert_state(workflow, "ready")

    @pytest.mark.parametrize("address", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
    def test_redirects_to_this_site_only(self, admin_client_: Client, address: str) -> None:
        (workflow,) = started()
        response = admin_client_.post(url(ACT, workflow.pk, "pause"), {"next": address})
        assert response["Location"] == url(PAGE, workflow.pk)
        page = text(admin_client_.get(url(ACT, workflow.pk, "resume"), {"next": address}))
        assert f'href="{address}"' not in page

    def test_an_unknown_action_is_not_found(self, admin_client_: Client) -> None:
        (workflow,) = started()
        assert admin_client_.get(url(ACT, workflow.pk, "explode")).status_code == 404


class TestResumeAtAStep:
    def test_lists_the_runnable_steps_with_what_would_run(self, admin_client_: Client) -> None:
        one, two, performing = started(3)
        for workflow in (one, two):
            run_next_step(workflow)
        run_next_step(two)
        one.pause()
        two.pause()
        response = admin_client_.post(
            url(LIST), {"action": "resume_at", ACTION_CHECKBOX_NAME: [one.pk, two.pk, performing.pk]}
        )
        steps = {step["name"]: step for step in response.context["steps"]}
        assert steps["one"]["note"] == "completed in 2 of 2"
        assert steps["two"]["note"].startswith("completed in 1 of 2")
        assert "earlier steps completed: one" in steps["three"]["note"]
        assert "will not run: two (1)" in steps["three"]["note"]
        assert steps["buried"]["removed"] is True
        page = text(response)
        assert 'value="buried"' not in page
        assert response.context["refused_count"] == 1
        assert url(PAGE, performing.pk) in page

    def test_resumes_there(self, admin_client_: Client) -> None:
        (workflow,) = started()
        workflow.pause()
        admin_client_.post(url(ACT, workflow.pk, "resume_at"), {"step": "four", "reason": "on from there"})
        assert_step(workflow, "four", "scheduled")
        assert_state(workflow, "ready")

    @pytest.mark.parametrize("step", ["buried", "nowhere"])
    def test_refuses_a_step_that_cannot_run(self, admin_client_: Client, step: str) -> None:
        (workflow,) = started()
        workflow.pause()
        response = admin_client_.post(
            url(ACT, workflow.pk, "resume_at"), {"step": step, "reason": "so"}, follow=True
        )
        assert "cannot be resumed at" in text(response)
        assert_state(workflow, "paused")

    def test_asks_for_one_type_at_a_time(self, admin_client_: Client) -> None:
        (one,) = started()
        other = stumbled()
        response = admin_client_.post(
            url(LIST), {"action": "resume_at", ACTION_CHECKBOX_NAME: [one.pk, other.pk]}
        )
        assert "one type" in text(response)


class TestMany:
    def test_asks_first(self, admin_client_: Client) -> None:
        chosen = started(2)
        response = admin_client_.post(
            url(LIST), {"action": "cancel", ACTION_CHECKBOX_NAME: [each.pk for each in chosen]}
        )
        page = text(response)
        assert "Cancel: 2 workflows" in page
        assert "This cannot be undone" in page
        for workflow in chosen:
            assert f'value="{workflow.pk}"' in page
            assert_state(workflow, "ready")

    def test_one_that_fails_is_listed_and_the_others_are_done(self, admin_client_: Client) -> None:
        ready, ended = started(2)
        ended.cancel()
        response = admin_client_.post(
            url(MANY, "pause"), {ACTION_CHECKBOX_NAME: [ready.pk, ended.pk], "reason": "x"}, follow=True
        )
        page = text(response)
        assert "Pause: 1 done." in page
        assert f"1 failed: {ended.pk}: " in page
        assert_state(ready, "paused")

    def test_all_that_match_are_done_in_the_background(self, admin_client_: Client) -> None:
        chosen = started(3)
        other = stumbled()
        chosen[1].cancel()
        query = "?type=testapp.FiveSteps"
        asked = admin_client_.post(
            url(LIST) + query,
            {"action": "cancel", ACTION_CHECKBOX_NAME: [chosen[0].pk], "select_across": "1"},
        )
        assert asked.context["count"] == 3
        assert "in the background" in text(asked)

        response = admin_client_.post(
            url(MANY, "cancel"),
            {
                "across": "1",
                "query": asked.context["query"],
                "up_to": asked.context["up_to"],
                "reason": "enough",
            },
        )
        bulk = BulkAction.objects.get()
        assert response["Location"] == url(PAGE, bulk.pk)
        late = started()[0]
        run_to_end(bulk)

        assert_state(bulk, "finished")
        for workflow in chosen:
            assert_state(workflow, "canceled")
        assert_state(other, "paused")
        assert_state(late, "ready")
        assert (bulk.metadata["total"], bulk.metadata["failed"]) == (3, 1)
        assert bulk.metadata["failures"][0][0] == str(chosen[1].pk)
        reasons = OperatorAction.objects.filter(reason="enough").values_list("actor", flat=True)
        assert list(reasons) == ["root", "root"]
        assert "3 of 3 (100%)" in text(admin_client_.get(url(PAGE, bulk.pk)))

    def test_a_bulk_action_lists_what_failed_by_id(self, admin_client_: Client) -> None:
        chosen = started(2)
        chosen[0].cancel()
        asked = admin_client_.post(
            url(LIST), {"action": "pause", ACTION_CHECKBOX_NAME: [chosen[0].pk], "select_across": "1"}
        )
        admin_client_.post(url(MANY, "pause"), {"across": "1", "up_to": asked.context["up_to"]})
        bulk = run_to_end(BulkAction.objects.get())
        page = text(admin_client_.get(url(PAGE, bulk.pk)))
        assert "1 failed:" in page
        assert url(PAGE, chosen[0].pk) in page
        assert "is canceled: only a ready or performing workflow can be paused." in page

    def test_no_match_changes_nothing(self, admin_client_: Client) -> None:
        (workflow,) = started()
        asked = admin_client_.post(
            url(LIST) + "?state=paused",
            {"action": "cancel", ACTION_CHECKBOX_NAME: [workflow.pk], "select_across": "1"},
        )
        assert asked.status_code in (200, 302)
        assert_state(workflow, "ready")

    @pytest.mark.parametrize("query", ["hero=order", "hero=testapp.order:x"])
    def test_a_wrong_filter_is_refused(self, admin_client_: Client, query: str) -> None:
        (workflow,) = started()
        data = {"across": "1", "query": query, "up_to": workflow.pk, "reason": "so"}
        assert admin_client_.post(url(MANY, "cancel"), data).status_code == 400
        assert_state(workflow, "ready")


class TestStarting:
    def form(self, **more: Any) -> dict[str, Any]:
        from django.contrib.contenttypes.models import ContentType

        order = ContentType.objects.get_for_model(Order)
        return {"type": "testapp.FiveSteps", "hero_model": order.pk, **more}

    def test_starts_for_a_hero(self, admin_client_: Client) -> None:
        order = Order.objects.create()
        admin_client_.post(url("geneva_drive_start"), self.form(hero_key=order.pk))
        workflow = FiveSteps.objects.for_hero(order).ready().get()
        action = OperatorAction.objects.get(workflow=workflow)
        assert (action.action, action.actor) == ("start", "root")

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            ({"hero_key": "99999"}, "There is no"),
            ({"hero_key": "x"}, "There is no"),
            ({"hero_key": ""}, "Give both"),
            ({"hero_model": "", "hero_key": ""}, "without a hero"),
        ],
    )
    def test_says_what_is_wrong(self, admin_client_: Client, more: dict[str, str], message: str) -> None:
        response = admin_client_.post(url("geneva_drive_start"), self.form(**more))
        assert message in text(response)
        assert FiveSteps.objects.count() == 0

    def test_a_second_one_for_the_same_hero_is_refused(self, admin_client_: Client) -> None:
        (workflow,) = started()
        response = admin_client_.post(url("geneva_drive_start"), self.form(hero_key=workflow.hero_id))
        assert "already ongoing" in text(response)
        assert FiveSteps.objects.count() == 1

    def test_needs_its_permission(self, client_with: Callable[..., Client]) -> None:
        assert client_with("view_workflow", "add_workflow").get(url("geneva_drive_start")).status_code == 403
        assert (
            client_with("view_workflow", "start_workflow").get(url("geneva_drive_start")).status_code == 200
        )


class TestInline:
    def test_shows_the_hero_s_workflows_on_its_own_page(self, admin_client_: Client) -> None:
        (mine,) = started()
        (other,) = started()
        page = text(admin_client_.get(url("testapp_order_change", mine.hero_id)))
        assert url(PAGE, mine.pk) in page
        assert url(PAGE, other.pk) not in page

    def test_saving_the_page_changes_no_workflow(self, admin_client_: Client) -> None:
        (mine,) = started()
        before = Workflow.objects.values().get(pk=mine.pk)
        page = admin_client_.get(url("testapp_order_change", mine.hero_id))
        prefix = page.context["inline_admin_formsets"][0].formset.prefix
        data = {
            "number": "12",
            "log": '["x"]',
            f"{prefix}-TOTAL_FORMS": 0,
            f"{prefix}-INITIAL_FORMS": 0,
            f"{prefix}-MIN_NUM_FORMS": 0,
            f"{prefix}-MAX_NUM_FORMS": 0,
        }
        for _ in range(3):
            response = admin_client_.post(url("testapp_order_change", mine.hero_id), data)
            assert response.status_code == 302
        assert Workflow.objects.values().get(pk=mine.pk) == before
        assert Order.objects.get(pk=mine.hero_id).number == "12"
