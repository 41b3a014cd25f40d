"""Workflows in the states that housekeeping looks for."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.db import connections

from geneva_drive import clock, step
from geneva_drive.execution.perform import ClaimedExecution, row_of
from geneva_drive.models import Process, StepExecution, Workflow
from tests.worker.support import Base, active

__all__ = ["DAY", "KeptPausing", "KeptTwo", "at_once", "ended", "in_hand", "process"]

DAY = timedelta(days=1)


class KeptTwo(Base):
    @step
    def one(self) -> None:
        pass

    @step
    def two(self) -> None:
        pass


class KeptPausing(Base):
    @step(on_crash="pause")
    def one(self) -> None:
        pass


def process(*, beat: timedelta = timedelta(0)) -> Process:
    """A process whose last beat was so long ago."""
    moment = clock.local(clock.now() - beat)
    return Process.objects.create(
        hostname="here", pid=1, kind="worker", started_at=moment, heartbeat_at=moment
    )


def in_hand(
    workflow: Workflow, owner: Process | None, *, since: timedelta = DAY, **columns: Any
) -> ClaimedExecution:
    """Let ``owner`` be in the middle of the workflow's scheduled step, as it would be itself."""
    token = uuid4()
    row = active(workflow)
    StepExecution.objects.filter(pk=row.pk).update(
        state="in_progress",
        process=owner,
        attempt_token=token,
        started_at=clock.local(clock.now() - since),
        **columns,
    )
    Workflow.objects.filter(pk=workflow.pk).update(state="performing", current_step_name=row.step_name)
    workflow.refresh_from_db()
    definition = type(workflow).steps.get(row.step_name)
    return ClaimedExecution(workflow, active(workflow), definition, token, row=row_of(workflow))


def ended(count: int, *, ago: timedelta, state: str = "finished") -> list[Workflow]:
    """Workflows with two executions each that ended so long ago."""
    workflows: list[Workflow] = [KeptTwo.start() for _ in range(count)]
    keys = [each.pk for each in workflows]
    for workflow in workflows:
        first = active(workflow)
        first.pk = None
        StepExecution.objects.filter(workflow=workflow).update(state="completed", outcome="success")
        first._state.adding = True
        first.state, first.outcome = "completed", "success"
        first.save()
    Workflow.objects.filter(pk__in=keys).update(
        state=state, next_step_name=None, transitioned_at=clock.local(clock.now() - ago)
    )
    return workflows


def at_once(*acts: Any) -> None:
    """Run all in threads of their own; none may raise or hang."""
    failed: list[BaseException] = []

    def guarded(act: Any) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=guarded, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failed == []
    assert not any(thread.is_alive() for thread in threads)
