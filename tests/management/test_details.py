"""Details of the output of the read-only commands, on which scripts and operators rely."""

from __future__ import annotations

import io
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command

from geneva_drive import clock
from geneva_drive.models import StepExecution
from geneva_drive.testing import travel
from tests.management.test_action_commands import started, stumbled

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("limit", ["0", "-1"])
def test_a_list_of_no_rows_is_refused(command: Callable[..., Any], limit: str) -> None:
    started()
    answer = command("geneva_list", "--limit", limit)
    assert (answer.status, answer.out, answer.err) == (2, "", f"--limit {limit}: give 1 or more.")


def test_a_list_in_json_has_moments(command: Callable[..., Any]) -> None:
    (workflow,) = started()
    execution = StepExecution.objects.get(workflow=workflow)
    (line,) = command("geneva_list", "--json").json["workflows"]
    assert datetime.fromisoformat(line["created_at"]) == clock.utc(workflow.created_at)
    assert datetime.fromisoformat(line["scheduled_for"]) == clock.utc(execution.scheduled_for)
    assert (line["started_at"], line["waiting_since"]) == (None, None)


def test_an_overdue_step_says_for_how_long(command: Callable[..., Any]) -> None:
    (workflow,) = started()
    with travel(timedelta(hours=3)):
        assert re.search("overdue by 3 h|overdue by 2 h 59 min", command("geneva_show", workflow.pk).out)


def test_a_message_that_is_cut_says_so(command: Callable[..., Any]) -> None:
    workflow = stumbled()
    failed = StepExecution.objects.filter(workflow=workflow, state="failed")
    failed.update(error_message="x" * 250)
    assert "x" * 200 + "…\n" in command("geneva_show", workflow.pk).out
    failed.update(error_message="first\nsecond")
    assert "first…\n" in command("geneva_show", workflow.pk).out
    failed.update(error_message="x" * 200)
    assert "x" * 200 + "\n" in command("geneva_show", workflow.pk).out


def test_an_operator_action_says_where_it_went(command: Callable[..., Any]) -> None:
    (workflow,) = started()
    workflow.pause(by="ada")
    workflow.resume_at("four", by="ada")
    assert re.search(r"resume_at four +ada", command("geneva_show", workflow.pk).out)


def test_a_closed_pipe_ends_it_quietly() -> None:
    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    with pytest.raises(SystemExit) as ended:
        call_command("geneva_list", stdout=Closed())
    assert ended.value.code == 141
