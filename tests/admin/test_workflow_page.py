"""What the admin's pages show."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from geneva_drive import Workflow, step
from geneva_drive.models import Process, StepExecution
from geneva_drive.testing import run_next_step, run_to_end, travel
from tests.admin.conftest import url
from tests.management.test_action_commands import started, stumbled
from tests.reports.test_selection import Waiting
from tests.testapp.models import Order
from tests.testapp.workflows import Heroless

pytestmark = pytest.mark.django_db

LIST = "geneva_drive_workflow_changelist"
PAGE = "geneva_drive_workflow_change"

NASTY = "<script>alert('x')</script>"


class RenamedOnPage(Workflow):
    """Has a renamed step."""

    may_proceed_without_hero = True

    class Meta:
        app_label = "testapp"

    @step(formerly=["old_name"])
    def new_name(self) -> None: ...


def text(response: Any) -> str:
    assert response.status_code == 200, response.status_code
    content: str = response.content.decode()
    return content


class TestList:
    def test_shows_where_workflows_stand(self, admin_client_: Client) -> None:
        (ready,) = started()
        failed = stumbled()
        page = text(admin_client_.get(url(LIST)))
        assert str(ready.hero) in page
        assert "ValueError" in page
        assert url(PAGE, failed.pk) in page

    @pytest.mark.parametrize(
        ("query", "wanted"),
        [
            ("state=paused", {"failed"}),
            ("state=ongoing", {"ready", "failed"}),
            ("state=finished", {"ended"}),
            ("type=testapp.FiveSteps", {"ready", "ended"}),
            ("type=testapp.FiveSteps&step=one", {"ready"}),
            ("error=builtins.ValueError", {"failed"}),
            ("queue=default", {"ready"}),
            ("queue=mail", set()),
            ("overdue=any", {"ready"}),
            ("overdue=day", set()),
            ("waiting=any", set()),
            ("undeclared=yes", set()),
            ("created=hour", {"ready", "failed", "ended"}),
            ("moved=hour", {"failed", "ended"}),
            ("state=paused&type=testapp.FiveSteps", set()),
        ],
    )
    def test_filters(self, admin_client_: Client, query: str, wanted: set[str]) -> None:
        (ready,) = started()
        failed = stumbled()
        (ended,) = started()
        run_to_end(ended)
        names = {ready.pk: "ready", failed.pk: "failed", ended.pk: "ended"}
        with travel(timedelta(minutes=1)):
            response = admin_client_.get(f"{url(LIST)}?{query}")
        found = {names[each.pk] for each in response.context["cl"].result_list}
        assert found == wanted

    def test_searches_by_id_hero_key_and_hero_model(self, admin_client_: Client) -> None:
        first, second = started(2)
        heroless = stumbled()
        cases = {
            str(heroless.pk): {heroless.pk} | {w.pk for w in (first, second) if w.hero_id == heroless.pk},
            f"testapp.order:{second.hero_id}": {second.pk},
            "testapp.order": {first.pk, second.pk},
            "order": {first.pk, second.pk},
            "no such thing": set(),
        }
        for term, wanted in cases.items():
            response = admin_client_.get(url(LIST), {"q": term})
            assert {each.pk for each in response.context["cl"].result_list} == wanted, term

    def test_costs_as_many_queries_for_many_as_for_few(self, admin_client_: Client) -> None:
        def queries() -> int:
            with CaptureQueriesContext(connection) as captured:
                text(admin_client_.get(url(LIST)))
            return len(captured)

        stumbled()
        started(2)
        queries()
        few = queries()
        started(30)
        assert queries() == few

    def test_shows_rows_of_a_class_and_a_hero_that_are_gone(self, admin_client_: Client) -> None:
        gone, orphan = started(2)
        Workflow.objects.filter(pk=gone.pk).update(type="testapp.Gone")
        Order.objects.filter(pk=orphan.hero_id).delete()
        page = text(admin_client_.get(url(LIST)))
        assert "class undeclared" in page
        assert "deleted" in page
        text(admin_client_.get(url(PAGE, gone.pk)))
        text(admin_client_.get(url(PAGE, orphan.pk)))

    def test_has_no_inline_script_or_style_of_ours(self, admin_client_: Client) -> None:
        stumbled()
        for name in ("geneva_drive_overview", "geneva_drive_removed_steps", "geneva_drive_start"):
            page = text(admin_client_.get(url(name)))
            assert "style=" not in page
            assert "onclick" not in page


class TestWorkflowPage:
    def test_shows_what_happened_at_each_step(self, admin_client_: Client) -> None:
        (workflow,) = started()
        run_next_step(workflow)
        page = text(admin_client_.get(url(PAGE, workflow.pk)))
        for name in ("one", "two", "buried", "three", "four", "five"):
            assert f"<b>{name}</b>" in page
        assert 'class="gd-quiet gd-grave"' in page
        assert 'aria-current="step"' in page
        assert str(workflow.hero) in page

    def test_escapes_everything(self, admin_client_: Client) -> None:
        workflow = stumbled()
        workflow.signal(NASTY, {"x": NASTY}, idempotency_key=NASTY)
        StepExecution.objects.filter(workflow=workflow, step_name="second").update(
            error_message=NASTY, error_traceback=NASTY, error_class=NASTY, metadata={"x": NASTY}
        )
        workflow.resume(by=NASTY, reason=NASTY)
        Workflow.objects.filter(pk=workflow.pk).update(metadata={"x": NASTY})
        StepExecution.objects.filter(workflow=workflow, state="scheduled").update(cursor={"x": NASTY})
        page = text(admin_client_.get(url(PAGE, workflow.pk)))
        assert NASTY not in page
        assert page.count("&lt;script&gt;") >= 10
        gone = stumbled()
        Workflow.objects.filter(pk=gone.pk).update(type=NASTY, next_step_name=NASTY)
        process = Process(hostname=NASTY, pid=1, kind=NASTY, queues=NASTY)
        process.started_at = process.heartbeat_at = gone.created_at
        process.save()
        for address in (
            url(LIST),
            url(PAGE, gone.pk),
            url("geneva_drive_overview"),
            url("geneva_drive_removed_steps"),
            url("geneva_drive_act", gone.pk, "cancel"),
            url(LIST) + "?q=%3Cscript%3Ealert('x')%3C/script%3E",
            url(LIST) + "?hero=%3Cscript%3Ealert('x')%3C/script%3E",
        ):
            page = text(admin_client_.get(address, follow=True))
            assert NASTY not in page, address

    def test_says_that_the_hero_s_model_is_missing(self, admin_client_: Client) -> None:
        (workflow,) = started()
        gone = ContentType.objects.create(app_label="testapp", model="nolongerthere")
        Workflow.objects.filter(pk=workflow.pk).update(hero_type=gone)
        for address in (url(LIST), url(PAGE, workflow.pk)):
            page = text(admin_client_.get(address))
            assert "testapp.nolongerthere" in page
            assert "model missing" in page

    def test_shows_a_hero_whose_str_fails(
        self, admin_client_: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (workflow,) = started()

        def fail(self: Order) -> str:
            raise RuntimeError("no name")

        monkeypatch.setattr(Order, "__str__", fail)
        assert f"testapp.order {workflow.hero_id}" in text(admin_client_.get(url(LIST)))

    def test_shows_received_signals_and_the_awaited_one(self, admin_client_: Client) -> None:
        workflow = Waiting.start()
        run_next_step(workflow)
        workflow.signal("other", {"a": 1})
        page = text(admin_client_.get(url(PAGE, workflow.pk)))
        assert "work has waited for news for" in page
        assert "waits for news" in page
        workflow.signal("news", {"b": 2}, idempotency_key="evt_1")
        page = text(admin_client_.get(url(PAGE, workflow.pk)))
        assert "claimed by work" in page
        assert "evt_1" in page
        assert "waited for news, received" in page

    def test_shows_the_former_name_of_a_step(self, admin_client_: Client) -> None:
        workflow = RenamedOnPage.start()
        StepExecution.objects.filter(workflow=workflow).update(step_name="old_name")
        Workflow.objects.filter(pk=workflow.pk).update(next_step_name="old_name")
        page = text(admin_client_.get(url(PAGE, workflow.pk)))
        assert "formerly old_name" in page
        assert page.count('aria-current="step"') == 1
        assert "not declared" not in page

    def test_offers_what_the_state_allows(self, admin_client_: Client) -> None:
        workflow = stumbled()
        page = text(admin_client_.get(url(PAGE, workflow.pk)))
        assert "Resume: retry second" in page
        assert "Skip second…" in page
        assert "Run now" not in page
        workflow.cancel()
        page = text(admin_client_.get(url(PAGE, workflow.pk)))
        assert 'class="gd-tools"' not in page

    def test_an_undeclared_step_is_marked_and_cannot_be_skipped_or_resumed(
        self, admin_client_: Client
    ) -> None:
        (workflow,) = started()
        StepExecution.objects.filter(workflow=workflow).update(step_name="gone")
        Workflow.objects.filter(pk=workflow.pk).update(next_step_name="gone")
        page = text(admin_client_.get(url(PAGE, workflow.pk)))
        assert "Skip gone" not in page
        workflow.pause()
        paused = admin_client_.get(url(PAGE, workflow.pk))
        labels = [button["label"] for button in paused.context["buttons"]]
        assert labels == ["Resume at a step…", "Reschedule…", "Send a signal…", "Cancel…"]
        assert "not declared in this code" in page
        assert page.count('aria-current="step"') == 1
        assert 'class="gd-why gd-bad"' in page

    def test_an_unknown_workflow_is_not_found(self, admin_client_: Client) -> None:
        assert admin_client_.get(url(PAGE, 10**8)).status_code == 404
        assert admin_client_.get(url(PAGE, "x")).status_code == 404


class TestOverview:
    def test_counts_and_links_to_what_it_counts(self, admin_client_: Client) -> None:
        started(3)
        stumbled()
        (undeclared,) = started()
        Workflow.objects.filter(pk=undeclared.pk).update(type="testapp.Gone")
        response = admin_client_.get(url("geneva_drive_overview"))
        page = text(response)
        cards = {str(card["label"]): card for card in response.context["cards"]}
        assert cards["paused"]["count"] == 1
        assert cards["undeclared"]["count"] == 1
        assert cards["live processes"]["count"] == 0
        assert "class undeclared" in page
        for card in cards.values():
            if not card["url"].startswith("#"):
                rows = admin_client_.get(card["url"]).context["cl"].result_list
                assert len(rows) == card["count"], card["label"]
        (by_type,) = [each for each in response.context["types"] if each["label"] == "testapp.FiveSteps"]
        assert by_type["cells"][0]["count"] == 3
        for each in response.context["types"]:
            for cell in each["cells"]:
                rows = admin_client_.get(cell["url"]).context["cl"].result_list
                assert len(rows) == cell["count"], cell["url"]

    def test_shows_processes_with_what_they_run(self, admin_client_: Client) -> None:
        (workflow,) = started()
        created = workflow.executions.get().created_at
        process = Process.objects.create(
            hostname="somewhere", pid=7, kind="worker", started_at=created, heartbeat_at=created
        )
        StepExecution.objects.update(state="in_progress", process=process, started_at=created)
        page = text(admin_client_.get(url("geneva_drive_overview")))
        assert "somewhere · 7" in page
        assert url(PAGE, workflow.pk) in page
        with travel(timedelta(hours=1)):
            assert "dead" in text(admin_client_.get(url("geneva_drive_overview")))

    def test_explains_empty_lists(self, admin_client_: Client) -> None:
        page = text(admin_client_.get(url("geneva_drive_overview")))
        assert "No workflow has been started yet" in page
        assert "No process runs steps" in page


class TestRemovedSteps:
    def test_shows_which_gravestones_can_be_deleted(self, admin_client_: Client) -> None:
        assert "can be deleted now" in text(admin_client_.get(url("geneva_drive_removed_steps")))
        (workflow,) = started()
        StepExecution.objects.filter(workflow=workflow).update(step_name="buried")
        Workflow.objects.filter(pk=workflow.pk).update(next_step_name="buried")
        response = admin_client_.get(url("geneva_drive_removed_steps"))
        graves = {(each["row"].type, each["row"].step): each for each in response.context["graves"]}
        grave = graves["testapp.FiveSteps", "buried"]
        assert (grave["row"].executions, grave["row"].landing, grave["row"].can_be_deleted) == (1, 1, False)
        for address in (grave["url"], grave["landing_url"]):
            rows = admin_client_.get(address).context["cl"].result_list
            assert [each.pk for each in rows] == [workflow.pk], address

    def test_lists_what_this_code_does_not_declare(self, admin_client_: Client) -> None:
        (workflow,) = started()
        StepExecution.objects.filter(workflow=workflow).update(step_name="gone")
        Workflow.objects.filter(pk=workflow.pk).update(next_step_name="gone")
        response = admin_client_.get(url("geneva_drive_removed_steps"))
        (missing,) = response.context["missing"]
        assert (missing["row"].step, missing["row"].workflows) == ("gone", 1)
        assert "gone = removed_step()" in text(response)


@override_settings(LANGUAGE_CODE="nl", USE_I18N=True)
def test_pages_work_in_other_languages(admin_client_: Client) -> None:
    workflow = stumbled()
    text(admin_client_.get(url(LIST)))
    text(admin_client_.get(url(PAGE, workflow.pk)))
    text(admin_client_.get(url("geneva_drive_overview")))


class TestPaging:
    def test_counts_no_further_than_its_cap(
        self, admin_client_: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("geneva_drive.admin.changelist.MOST", 60)
        for _ in range(70):
            Heroless.start()
        page = text(admin_client_.get(url(LIST)))
        assert "60 or more workflows" in page
        assert "Select all that match" in page
        assert "Select all 60" not in page
        assert len(admin_client_.get(url(LIST) + "?p=2").context["cl"].result_list) == 10
