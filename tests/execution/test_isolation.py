"""While user code runs, there is no lock and no transaction; attributes set on ``self`` are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, connections, transaction

from geneva_drive import StepExecution, Workflow, clock, step
from geneva_drive.testing import assert_state, run_to_end
from tests.execution.support import Free, history, run, trace
from tests.testapp.models import Effect, Order


def elsewhere(act: Callable[[], Any]) -> Any:
    """Call it in another thread, on its own connection."""

    def there() -> Any:
        try:
            return act()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(there).result(timeout=60)


def look(workflow: Any, where: str) -> None:
    """Record whether a transaction is open, and whether another connection can write both rows."""

    def write_both() -> Any:
        with transaction.atomic():
            moment = clock.local(clock.now())
            if connection.features.has_select_for_update_skip_locked:
                # Locked rows are skipped.
                free = Workflow.objects.select_for_update(skip_locked=True).filter(pk=workflow.pk).count()
                rows = StepExecution.objects.select_for_update(skip_locked=True)
                return len(rows.filter(workflow_id=workflow.pk, state="in_progress")) + free
            # On SQLite any open write transaction makes this wait and fail.
            written = Workflow.objects.filter(pk=workflow.pk).update(updated_at=moment)
            return written + StepExecution.objects.filter(state="in_progress").update(dispatched_at=moment)

    trace.append((where, connection.in_atomic_block, elsewhere(write_both)))


class Looking(Free):
    hero_model = "testapp.Order"
    may_proceed_without_hero = False

    def before_step(self, execution: StepExecution) -> None:
        look(self, "before")

    def after_step(self, execution: StepExecution) -> None:
        look(self, "after")

    @contextmanager
    def around_step(self, execution: StepExecution) -> Iterator[None]:
        look(self, "around")
        yield

    @step
    def one(self) -> None:
        look(self, "one")

    @step(skip_if=lambda workflow: False)
    def two(self) -> None:
        look(self, "two")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("inline_continuation", [False, True])
def test_no_lock_and_no_transaction_is_open_in_bodies_and_hooks(inline_continuation: bool) -> None:
    workflow = Looking.start(Order.objects.create())

    while workflow.state == "ready":
        run(workflow, inline_continuation=inline_continuation)

    assert trace == [
        (where, False, 2) for name in ("one", "two") for where in ("around", "before", name, "after")
    ]
    assert_state(workflow, "finished")


@pytest.mark.django_db(transaction=True)
def test_a_body_can_open_a_durable_block() -> None:
    class Durable(Free):
        @step
        def only(self) -> None:
            with transaction.atomic(durable=True):
                Effect.objects.create(workflow=str(self.pk), step="only")

    workflow = Durable.start()
    run(workflow)

    assert history(workflow) == [("only", "completed", "success")]


@pytest.mark.django_db(transaction=True)
@pytest.mark.only_on(
    "postgresql", reason="elsewhere a schema change waits for no idle transaction, or for all"
)
def test_a_schema_change_does_not_wait_for_a_step() -> None:
    def alter() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '2s'")
            cursor.execute("ALTER TABLE geneva_drive_workflow ADD COLUMN tried integer")
            cursor.execute("ALTER TABLE geneva_drive_workflow DROP COLUMN tried")

    class Slow(Free):
        @step
        def slow(self) -> None:
            trace.append(self.metadata)
            elsewhere(alter)

    workflow = Slow.start()
    run(workflow)

    assert_state(workflow, "finished")


class Forgetful(Free):
    """Sets attributes on its instance, and checks that the next step sees none of them."""

    may_proceed_without_hero = False

    def _set(self) -> None:
        other = Order.objects.create(number="other")
        self.hero.number = "changed and not saved"
        self.hero = other
        self.note = "on self"
        self.next_step_name = "nowhere"
        self.started_at = None
        self.allow_multiple = True
        self.job_options = {"queue": "nowhere"}
        self.metadata = {"changed": "and not saved"}
        self.state = "finished"

    def _look(self) -> None:
        trace.append(
            {
                "instance": id(self),
                "hero": self.hero.number,
                "note": getattr(self, "note", None),
                "allow_multiple": self.allow_multiple,
                "job_options": self.job_options,
                "metadata": self.metadata,
                "state": self.state,
                "at": (self.current_step_name, self.next_step_name),
                "begun": self.started_at is not None,
            }
        )

    @step
    def one(self) -> None:
        self._look()
        self._set()

    @step
    def two(self) -> None:
        self._look()
        self._set()

    @step(skip_if=lambda workflow: False)
    def three(self) -> None:
        self._look()
        self._set()

    @step(atomic=True)
    def four(self) -> None:
        self._look()
        self._set()

    @step
    def five(self) -> None:
        self._look()


@pytest.mark.django_db
@pytest.mark.parametrize("inline_continuation", [False, True])
def test_attributes_set_by_a_body_do_not_reach_the_next(inline_continuation: bool) -> None:
    workflow = Forgetful.start(Order.objects.create(number="first"), metadata={"kept": 1})

    while workflow.state == "ready":
        run(workflow, inline_continuation=inline_continuation)

    for name, seen in zip(("one", "two", "three", "four", "five"), trace, strict=True):
        del seen["instance"]
        assert seen == {
            "hero": "first",
            "note": None,
            "allow_multiple": False,
            "job_options": None,
            "metadata": {"kept": 1},
            "state": "performing",
            "at": (name, name),
            "begun": True,
        }
    assert workflow.hero.number == "first"
    assert workflow.allow_multiple is False
    assert [row.queue for row in workflow.executions.all()] == 5 * ["default"]


@pytest.mark.django_db
@pytest.mark.parametrize("inline_continuation", [False, True])
def test_the_next_body_sees_what_a_body_saved(inline_continuation: bool) -> None:
    class Saving(Free):
        @step
        def saves(self) -> None:
            self.metadata = {"parcels": [1, 2]}
            self.save()

        @step
        def reads(self) -> None:
            trace.append({"parcels": [*self.metadata["parcels"]]})
            self.metadata["parcels"].append(3)
            self.save(update_fields=["metadata"])

        @step
        def reads_again(self) -> None:
            trace.append(self.metadata)

    workflow = Saving.start()
    while workflow.state == "ready":
        run(workflow, inline_continuation=inline_continuation)

    assert trace == [{"parcels": [1, 2]}, {"parcels": [1, 2, 3]}]


@pytest.mark.django_db
@pytest.mark.parametrize("inline_continuation", [False, True])
@pytest.mark.parametrize("by_another_instance", [False, True])
def test_job_options_saved_by_a_body_apply_to_the_next_step(
    inline_continuation: bool, by_another_instance: bool
) -> None:
    class Moving(Free):
        @step
        def moves(self) -> None:
            row = Workflow.objects.get(pk=self.pk) if by_another_instance else self
            row.job_options = {"queue": "slow", "priority": 7}
            row.save()

        @step
        def moved(self) -> None:
            trace.append(self.job_options)

    workflow = Moving.start(job_options={"priority": 3})
    run(workflow, inline_continuation=inline_continuation)

    # On another queue, so there is no inline continuation.
    assert history(workflow)[1] == ("moved", "scheduled", None)
    first, second = workflow.executions.order_by("pk")
    assert ((first.queue, first.priority), (second.queue, second.priority)) == (("default", 3), ("slow", 7))
    run_to_end(workflow)
    assert trace == [{"queue": "slow", "priority": 7}]
