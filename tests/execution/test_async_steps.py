"""Steps that are coroutine functions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from geneva_drive import InvalidStateError, step
from geneva_drive.execution.executor import execute
from geneva_drive.testing import assert_state, assert_step, run_to_end
from tests.execution.support import Free, active, history, run, trace
from tests.testapp.models import Effect

pytestmark = pytest.mark.django_db


class Fetching(Free):
    @step
    async def fetch(self) -> None:
        await asyncio.sleep(0)
        await Effect.objects.acreate(workflow=str(self.pk), step="fetch")
        trace.append(await sync_to_async(lambda: id(connection.connection))())

    @step
    def after(self) -> None:
        trace.append(id(connection.connection))


def test_an_async_step_runs_and_its_orm_calls_use_the_runners_own_connection() -> None:
    workflow = run_to_end(Fetching.start())

    assert Effect.objects.get().step == "fetch"
    assert len(trace) == 2
    assert len(set(trace)) == 1
    assert_state(workflow, "finished")


@pytest.mark.parametrize(
    ("word", "state"),
    [("pause", "paused"), ("cancel", "canceled"), ("finish", "finished"), ("skip", "ready")],
)
def test_an_async_step_can_use_flow_control(word: str, state: str) -> None:
    class SpeakingLater(Free):
        @step
        async def speaks(self) -> None:
            await asyncio.sleep(0)
            getattr(self, word)()

        @step
        async def after(self) -> None:
            pass

    workflow = SpeakingLater.start()
    run(workflow)

    assert_state(workflow, state)


def test_flow_control_raised_in_a_task_group_is_applied() -> None:
    class Grouped(Free):
        @step
        async def grouped(self) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(30))
                group.create_task(self.decide())

        async def decide(self) -> None:
            self.pause(reason="from a task")

    workflow = Grouped.start()
    run(workflow)

    assert assert_step(workflow, "grouped", "canceled", "workflow_paused").metadata == {
        "reason": "from a task"
    }


def test_an_error_next_to_flow_control_in_a_task_group_is_a_failure_and_not_a_crash() -> None:
    class Mixed(Free):
        @step
        async def mixed(self) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.decide())
                group.create_task(self.fail())

        async def decide(self) -> None:
            self.cancel()

        async def fail(self) -> None:
            raise ValueError("the parcel is lost")

    workflow = Mixed.start()

    with pytest.raises(BaseExceptionGroup):
        run(workflow)

    execution = assert_step(workflow, "mixed", "failed", "failed")
    assert "the parcel is lost" in (execution.error_traceback or "")
    assert_state(workflow, "paused")


def test_an_error_of_an_async_step_is_recorded() -> None:
    class Failing(Free):
        @step
        async def fails(self) -> None:
            raise LookupError("nobody there")

    workflow = Failing.start()
    with pytest.raises(LookupError):
        run(workflow)

    assert assert_step(workflow, "fails", "failed").error_message == "nobody there"


@pytest.mark.django_db(transaction=True)
def test_an_async_step_inside_a_running_loop_explains_that_it_cannot_run() -> None:
    workflow = Fetching.start()
    pk = active(workflow).pk

    async def outer() -> None:
        try:
            # Like code that forgets sync_to_async; the unsafe ORM call is not what this tests.
            execute(pk)
        finally:
            connection.close()  # a loop has its own connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        with pytest.raises(InvalidStateError, match="running event loop"):
            asyncio.run(outer())

    assert history(workflow) == [("fetch", "failed", "failed")]
    assert_state(workflow, "paused")


def test_from_a_running_loop_an_async_step_runs_in_a_thread() -> None:
    workflow = Fetching.start()
    pk = active(workflow).pk
    done: list[Any] = []

    async def outer() -> None:
        done.append(await sync_to_async(execute)(pk))

    from asgiref.sync import async_to_sync

    # async_to_sync runs sync_to_async on this thread, and so in the test's transaction.
    async_to_sync(outer)()

    assert done == [2]
    assert_state(workflow, "finished")
