"""What the doctor finds, and what it says to do."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from geneva_drive import Workflow
from geneva_drive.models import Process, StepExecution
from geneva_drive.reports.doctor import Finding, examine
from geneva_drive.testing import travel
from tests.management.test_action_commands import started, stumbled

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.django_db


def found(subject: str) -> list[Finding]:
    return [each for each in examine("default") if each.subject == subject]


def at_a_step_that_is_gone(workflow: Workflow) -> Workflow:
    StepExecution.objects.filter(workflow_id=workflow.pk).update(step_name="gone")
    Workflow.objects.filter(pk=workflow.pk).update(next_step_name="gone")
    return workflow


def test_finds_the_tables_in_order_and_no_worker(command: Callable[..., Any]) -> None:
    findings = command("geneva_doctor", "--json").json
    assert not [each for each in findings if each["level"] == "error"]
    (processes,) = [each for each in findings if each["subject"] == "processes"]
    assert (processes["level"], "No live process" in processes["message"]) == ("warning", True)
    assert command("geneva_doctor").status == 0
    assert command("geneva_doctor", "--strict").status == 1


def test_work_that_is_due_without_a_worker_is_an_error(command: Callable[..., Any]) -> None:
    started()
    answer = command("geneva_doctor")
    assert answer.status == 1
    assert "work is due" in answer.out
    assert "geneva_worker" in answer.out


def test_names_a_queue_that_nobody_serves(command: Callable[..., Any]) -> None:
    now = StepExecution.objects.first() or started()[0].executions.get()
    Process.objects.create(
        hostname="a",
        pid=1,
        kind="worker",
        queues="mail",
        started_at=now.created_at,
        heartbeat_at=now.created_at,
    )
    answer = command("geneva_doctor")
    assert answer.status == 1
    assert "scheduled on default" in answer.out


def test_sees_dead_processes_overdue_and_stuck_rows(command: Callable[..., Any]) -> None:
    first, second = started(2)
    created = first.executions.get().created_at
    Process.objects.create(hostname="a", pid=1, kind="worker", started_at=created, heartbeat_at=created)
    StepExecution.objects.filter(workflow=second).update(state="in_progress", started_at=created)
    with travel(timedelta(hours=2)):
        findings = {each["subject"]: each for each in command("geneva_doctor", "--json").json}
    assert {"overdue", "stuck"} <= set(findings)
    assert "1 executions are overdue" in findings["overdue"]["message"]


def test_settings_that_contradict_each_other_are_told(command: Callable[..., Any]) -> None:
    with override_settings(GENEVA_DRIVE={"STUCK_AFTER": timedelta(seconds=5)}):
        out = command("geneva_doctor").out
    assert "STUCK_AFTER" in out


def test_a_dispatcher_that_cannot_be_used_is_told(command: Callable[..., Any]) -> None:
    with override_settings(GENEVA_DRIVE={"DISPATCHER": "nowhere.Dispatcher"}):
        answer = command("geneva_doctor")
    assert answer.status == 1
    assert "nowhere.Dispatcher" in answer.out


def test_what_is_overdue_by_less_than_the_limit_is_not_denied(command: Callable[..., Any]) -> None:
    started()
    with override_settings(GENEVA_DRIVE={"OVERDUE_AFTER": timedelta(minutes=10)}):
        out = command("geneva_doctor").out
    assert "work is due" in out
    assert "Nothing is overdue by more than 10 min, and nothing is stuck." in out


def test_workflows_at_a_step_that_is_gone_are_told_by_state_with_a_way_out(
    command: Callable[..., Any],
) -> None:
    ready, other, paused, _ = started(4)
    paused.pause()
    for workflow in (ready, other, paused):
        at_a_step_that_is_gone(workflow)

    (finding,) = found("undeclared")

    assert finding.level == "warning"
    assert finding.message == (
        "3 workflows are at the step 'gone' of testapp.FiveSteps, which this code does not declare "
        "(2 ready, 1 paused)."
    )
    where = ("--type", "testapp.FiveSteps", "--step", "gone")
    assert " ".join(where) in finding.hint
    # What it says to do.
    assert command("geneva_pause", *where, "--state", "ready", "--no-input").status == 0
    assert command("geneva_resume_at", "four", *where, "--no-input").status == 0
    assert found("undeclared") == []


def test_workflows_of_a_class_that_is_gone_are_told_with_a_way_out(command: Callable[..., Any]) -> None:
    first, second = started(2)
    second.pause()
    Workflow.objects.filter(pk__in=[first.pk, second.pk]).update(type="testapp.Gone")

    (finding,) = found("undeclared")

    assert finding.message == (
        "2 workflows are of the class testapp.Gone, which this code does not declare (1 ready, 1 paused)."
    )
    assert "geneva_cancel --type testapp.Gone --undeclared" in finding.hint
    assert command("geneva_cancel", "--type", "testapp.Gone", "--undeclared", "--no-input").status == 0
    assert found("undeclared") == []


def test_workflows_that_failed_are_counted_and_those_that_somebody_paused_are_not() -> None:
    started()[0].pause()
    assert found("failures") == []
    again, *_ = stumbled(), stumbled(), stumbled()

    (finding,) = found("failures")
    assert (finding.level, finding.message) == ("warning", "3 workflows are paused because a step failed.")
    assert "geneva_list --state paused" in finding.hint

    again.resume()
    again.pause()
    (finding,) = found("failures")
    assert finding.message.startswith("2 workflows")


def test_what_failed_is_counted_no_further_than_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geneva_drive.reports.doctor._MANY", 2)
    for _ in range(3):
        stumbled()
    (finding,) = found("failures")
    assert finding.message.startswith("2+ workflows")


def test_it_asks_no_more_the_more_rows_there_are() -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            examine("default")
        return len(captured)

    at_a_step_that_is_gone(started()[0])
    stumbled()
    few = queries()
    for workflow in started(5):
        at_a_step_that_is_gone(workflow)
    for _ in range(5):
        stumbled()
    assert queries() == few


def test_tables_that_are_missing_are_told_at_once_with_one_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.introspection, "table_names", lambda cursor: [])
    findings = examine("default")
    (finding,) = findings
    assert (finding.level, finding.subject) == ("error", "tables")
    assert finding.message.startswith("The tables ")
    assert finding.message.endswith(" are missing.")
    for model in (Workflow, StepExecution, Process):
        assert model._meta.db_table in finding.message
    assert finding.hint == "Run migrate --database default."


def test_one_table_that_is_missing_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with connection.cursor() as cursor:
        names = connection.introspection.table_names(cursor)
    table = Process._meta.db_table
    monkeypatch.setattr(
        connection.introspection, "table_names", lambda cursor: [n for n in names if n != table]
    )
    (finding,) = found("tables")
    assert finding.message == f"The table {table} is missing."


def test_columns_that_are_missing_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = connection.introspection.get_table_description

    def narrow(cursor: Any, table: str) -> list[Any]:
        return [each for each in whole(cursor, table) if each.name not in ("hostname", "pid")]

    monkeypatch.setattr(connection.introspection, "get_table_description", narrow)
    (finding,) = found("tables")
    table = Process._meta.db_table
    assert finding.message == f"The columns {table}.hostname, {table}.pid are missing."
