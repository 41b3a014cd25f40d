"""Concurrent calls: real threads, each with its own connection."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections, transaction

from geneva_drive import AlreadyOngoingError, InvalidStateError, StepExecution, Workflow, step
from geneva_drive.execution.executor import execute
from geneva_drive.testing import run_to_end
from tests.execution.support import Free, active, history
from tests.testapp.models import Effect, Order

pytestmark = pytest.mark.django_db(transaction=True)


class Contended(Free):
    @step
    def one(self) -> None:
        Effect.objects.create(workflow=str(self.pk), step="one")

    @step
    def two(self) -> None:
        Effect.objects.create(workflow=str(self.pk), step="two")


def at_once(number: int, act: Callable[[int], Any]) -> list[Any]:
    """Return the result of each thread's call; all threads start together."""
    barrier = threading.Barrier(number)

    def work(position: int) -> Any:
        try:
            barrier.wait(60)
            return act(position)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(work, range(number)))


@pytest.mark.parametrize("how", ["start", "get_or_start", "start_many", "get_or_create"])
def test_of_twenty_concurrent_starts_for_one_hero_one_succeeds(how: str) -> None:
    order = Order.objects.create()

    def act(_: int) -> str:
        if how == "start":
            try:
                return f"started {Contended.start(order).pk}"
            except AlreadyOngoingError as error:
                return f"found {error.workflow.pk}" if error.workflow else "lost it"
        if how == "start_many":
            started, skipped = Contended.start_many([order])
            return f"started {started[0].pk}" if started else f"found {len(skipped)}"
        if how == "get_or_create":
            found, created = Contended.objects.get_or_create(hero=order)
        else:
            found, created = Contended.get_or_start(order)
        return f"{'started' if created else 'found'} {found.pk}"

    for _ in range(2):
        answers = Counter(answer.split()[0] for answer in at_once(20, act))
        assert answers == {"started": 1, "found": 19}
        existing = Contended.objects.ongoing().get()
        assert history(existing) == [("one", "scheduled", None)]
        # And again after it ended.
        run_to_end(existing)
        if how == "get_or_create":
            return  # finds the finished one, as get() does


def test_two_overlapping_batches_start_each_workflow_once() -> None:
    orders = [Order.objects.create() for _ in range(12)]
    batches = [orders[:8], orders[4:], list(reversed(orders))]

    answers = at_once(3, lambda position: Contended.start_many(batches[position]))

    created = [workflow.hero_id for started, _ in answers for workflow in started]
    assert sorted(created) == [order.pk for order in orders]
    assert Workflow.objects.count() == StepExecution.objects.count() == 12


def test_the_conflicting_workflow_is_found_even_if_it_is_newer_than_the_snapshot() -> None:
    order = Order.objects.create()
    with transaction.atomic():
        # The snapshot of a repeatable-read transaction is taken here.
        assert Workflow.objects.count() == 0
        if connection.vendor == "sqlite":
            # SQLite allows one writer at a time: the other must come first.
            started = None
        else:
            started = at_once(1, lambda _: Contended.start(order))[0]
        if started is None:
            started = Contended.start(order)
        with pytest.raises(AlreadyOngoingError) as raised:
            Contended.start(order)
        assert raised.value.workflow == started
        found, created = Contended.get_or_start(order)
        assert (found, created) == (started, False)
        Order.objects.create(number="still usable")

    assert Order.objects.filter(number="still usable").exists()


def test_of_eight_deliveries_of_one_execution_one_runs_it() -> None:
    workflow = Contended.start(Order.objects.create())
    pk = active(workflow).pk

    bodies = at_once(8, lambda _: execute(pk))

    assert sorted(bodies) == [0] * 7 + [2]
    assert sorted(Effect.objects.values_list("step", flat=True)) == ["one", "two"]
    assert history(workflow) == [("one", "completed", "success"), ("two", "completed", "success")]


def test_each_of_many_concurrent_controls_is_applied_completely_or_refused() -> None:
    workflow = Contended.start(Order.objects.create())

    def act(position: int) -> str:
        mine = Workflow.objects.get(pk=workflow.pk)
        try:
            (mine.pause if position % 2 else mine.resume)(by=str(position))
        except InvalidStateError:
            return "refused"
        return "done"

    answers = Counter(at_once(8, act))

    workflow.refresh_from_db()
    actions = list(workflow.operator_actions.order_by("pk").values_list("action", flat=True))
    assert len(actions) == answers["done"] >= 1
    # They alternate: pause, resume, pause …
    assert actions == [("pause", "resume")[position % 2] for position in range(len(actions))]
    assert workflow.state == ("paused" if len(actions) % 2 else "ready")
    assert active(workflow).on_hold is (workflow.state == "paused")


def test_a_concurrent_cancel_and_run_end_in_one_consistent_state() -> None:
    workflows = [Contended.start(Order.objects.create()) for _ in range(6)]

    def act(position: int) -> None:
        workflow = workflows[position // 2]
        if position % 2:
            execute(workflow.executions.earliest("pk").pk)
        else:
            try:
                Workflow.objects.get(pk=workflow.pk).cancel()
            except InvalidStateError:
                assert Workflow.objects.get(pk=workflow.pk).state == "finished"

    at_once(12, act)

    for workflow in workflows:
        workflow.refresh_from_db()
        states = [state for _, state, _ in history(workflow)]
        if workflow.state == "finished":
            assert states == ["completed", "completed"]
        else:
            assert workflow.state == "canceled"
            assert states[-1] == "canceled"
            assert not StepExecution.objects.active().filter(workflow_id=workflow.pk).exists()
