"""The attempts on the page of a workflow."""

from __future__ import annotations

import pytest
from django.test import Client

from geneva_drive.models import StepExecution
from tests.admin.conftest import url
from tests.admin.test_workflow_page import PAGE, text
from tests.management.test_action_commands import stumbled

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("message", ["no address", "first line\nsecond line", "x" * 200])
def test_shows_an_error_once_and_in_full(admin_client_: Client, message: str) -> None:
    workflow = stumbled()
    failed = StepExecution.objects.filter(workflow=workflow, step_name="second")
    failed.update(error_message=message, error_traceback="")
    page = text(admin_client_.get(url(PAGE, workflow.pk)))
    is_cut = message != "no address"
    assert f">ValueError: {message[:100]}" in page
    assert ('<details id="error-' in page) == is_cut
    assert (f'<pre tabindex="0">{message}</pre>' in page) == is_cut
    failed.update(error_traceback="Traceback: here")
    page = text(admin_client_.get(url(PAGE, workflow.pk)))
    below = f"{message}\n\nTraceback: here" if is_cut else "Traceback: here"
    assert f'<pre tabindex="0">{below}</pre>' in page
