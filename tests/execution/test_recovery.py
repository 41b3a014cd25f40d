"""A live process recovers its own lost executions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections

from geneva_drive import clock, step
from geneva_drive.execution.heartbeat import Heartbeat
from geneva_drive.execution.recovery import recover_own
from geneva_drive.models import StepExecution, Workflow
from geneva_drive.worker import Worker
from tests.worker.support import Base, active, history

pytestmark = pytest.mark.django_db(transaction=True)


class RecoveredTwo(Base):
    @step
    def one(self) -> None:
        pass

    @step
    def two(self) -> None:
        pass


@pytest.fixture
def heartbeat() -> Iterator[Heartbeat]:
    one = Heartbeat("default", "worker")
    one.start()
    yield one
    one.stop()


def begun(heartbeat: Heartbeat, *, ago: timedelta, **columns: Any) -> RecoveredTwo:
    """Return a workflow whose execution this process started that long ago."""
    workflow = RecoveredTwo.start()
    StepExecution.objects.filter(workflow_id=workflow.pk).update(
        state="in_progress",
        process=heartbeat.process_id,
        attempt_token=uuid4(),
        started_at=clock.local(clock.now() - ago),
        **columns,
    )
    Workflow.objects.filter(pk=workflow.pk).update(state="performing", current_step_name="one")
    return workflow


def test_an_execution_that_no_thread_runs_is_recovered(heartbeat: Heartbeat) -> None:
    """After a commit whose acknowledgement was lost, no thread runs the execution although its process is live."""
    workflow = begun(heartbeat, ago=timedelta(minutes=5))
    assert recover_own(heartbeat) == 1
    assert history(workflow) == [("one", "failed", "recovered"), ("one", "scheduled", None)]
    assert active(workflow).crashes == 1


def test_a_handed_off_execution_does_not_count_as_a_crash(heartbeat: Heartbeat) -> None:
    workflow = begun(heartbeat, ago=timedelta(minutes=5), handed_off=True)
    assert recover_own(heartbeat) == 1
    assert active(workflow).crashes == 0


def test_an_execution_that_a_thread_runs_is_left_alone(heartbeat: Heartbeat) -> None:
    workflow = begun(heartbeat, ago=timedelta(days=5))
    token = active(workflow).attempt_token
    assert token is not None
    heartbeat.track(token)
    assert recover_own(heartbeat) == 0
    assert active(workflow).state == "in_progress"
    heartbeat.untrack(token)
    assert recover_own(heartbeat) == 1


def test_a_recently_claimed_execution_is_left_for_its_thread(heartbeat: Heartbeat) -> None:
    begun(heartbeat, ago=timedelta(seconds=5))
    assert recover_own(heartbeat) == 0


def test_executions_of_other_processes_are_left_alone(heartbeat: Heartbeat) -> None:
    begun(heartbeat, ago=timedelta(days=1))
    other = Heartbeat("default", "worker")
    assert recover_own(other) == 0


def test_a_thread_that_starts_the_execution_at_the_last_moment_keeps_it(heartbeat: Heartbeat) -> None:
    """If the body starts between the query and the lock, the execution is left alone."""
    workflow = begun(heartbeat, ago=timedelta(minutes=5))
    token = active(workflow).attempt_token
    assert token is not None
    asked = []

    class LateHeld(Heartbeat):
        def tracked(self) -> frozenset[Any]:
            asked.append(1)
            return frozenset() if len(asked) == 1 else frozenset({token})

    late = LateHeld("default", "worker")
    late.process_id = heartbeat.process_id
    assert recover_own(late) == 0
    assert len(asked) == 2
    assert active(workflow).state == "in_progress"


def test_a_worker_checks_its_executions_at_each_beat(settings: Any) -> None:
    """A worker recovers an execution that its own process started and lost."""
    settings.GENEVA_DRIVE = {"LEASE": timedelta(seconds=1)}
    worker = Worker(poll_interval=0.05, max_steps=2)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)
        finally:
            connections.close_all()

    workflow = begun(worker.heartbeat, ago=timedelta(minutes=5))
    # Recent when the worker starts, so that it becomes old while the worker runs.
    StepExecution.objects.filter(workflow_id=workflow.pk).update(started_at=clock.local(clock.now()))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(90)
    worker.stop()
    assert not thread.is_alive()
    assert failed == []
    workflow.refresh_from_db()
    assert workflow.state == "finished"
    lost = workflow.executions.get(outcome="recovered")
    assert "its own process is alive, but no longer runs it" in (lost.error_message or "")
