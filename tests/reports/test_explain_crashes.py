"""What explain() says about an attempt that runs after a crash, and about force-stopped processes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from geneva_drive.conf import settings as geneva
from geneva_drive.execution.heartbeat import Heartbeat
from geneva_drive.housekeeping import recover
from geneva_drive.models import Process
from geneva_drive.reports.explain import explain
from geneva_drive.testing import crash_at, run_next_step, travel
from tests.reports.test_explain import Explained, crashed, raises, says, worker

if TYPE_CHECKING:
    from geneva_drive import Workflow

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _as_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Explained, "does", None)


def crash_again(workflow: Workflow) -> None:
    """Recover what is in progress, and start it again in a live process."""
    recover("default")
    with crash_at("performed"):
        run_next_step(workflow)
    workflow.executions.filter(state="in_progress").update(process=worker())


def test_a_second_and_a_third_attempt_mention_the_crash_before() -> None:
    workflow = crashed(None)
    for number, later in ((2, 1), (3, 2)):
        with travel((geneva.STUCK_AFTER + timedelta(minutes=1)) * later):
            workflow.executions.filter(state="in_progress").update(process=None)
            crash_again(workflow)
            says(
                workflow,
                r"Its step 'ship' has been in progress since TIME on box, process 17, which is alive\. This is "
                rf"attempt {number} in a row: the previous one was recovered at TIME because its process died\.",
            )


def test_an_attempt_after_an_error_mentions_no_crash() -> None:
    raises(OSError("no answer"))
    workflow = run_next_step(Explained.start())
    workflow.executions.filter(state="scheduled").update(crashes=1)
    Explained.does = None
    with crash_at("performed"):
        run_next_step(workflow)
    workflow.executions.filter(state="in_progress").update(process=worker())

    says(workflow, r"Its step 'ship' has been in progress since TIME on box, process 17, which is alive\.")


def test_a_first_attempt_needs_no_query_for_an_earlier_one() -> None:
    workflow = crashed(worker())
    with CaptureQueriesContext(
        connection,
    ) as first:
        explain(workflow)
    workflow.executions.update(crashes=1)
    with CaptureQueriesContext(connection) as later:
        explain(workflow)
    assert len(later) == len(first) + 1


def test_a_force_stopped_process_shows_no_heartbeat_from_before_its_start() -> None:
    heartbeat: Any = Heartbeat("default", kind="worker")
    heartbeat._register()
    heartbeat.mark_dead()
    process = Process.objects.get(pk=heartbeat.process_id)
    assert process.heartbeat_at < process.started_at
    Process.objects.update(hostname="box", pid=17)

    says(
        crashed(process),
        r"Its step 'ship' has been in progress since TIME on box, process 17, which was force-stopped while "
        r"running a step: the next housekeeping will recover it\.",
    )
