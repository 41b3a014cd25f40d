"""Signals in the caller's transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from geneva_drive import Signal, Workflow
from geneva_drive.testing import assert_state, assert_waiting_for, run_to_end
from tests.lifecycle.signals.support import active, at_gate, notes, signal_rows
from tests.lifecycle.signals.workflows import BadMatcher, Parcel
from tests.testapp.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)

IMMEDIATE = {"DISPATCHER": ("geneva_drive.dispatchers.Immediate", {"heartbeat": False})}

SERVERS = pytest.mark.only_on(
    "postgresql",
    "mysql",
    "mariadb",
    reason="SQLite lets no one write while a transaction that has read is open",
)


@pytest.fixture(params=["default", "repeatable read"])
def isolation(request: pytest.FixtureRequest, database: str) -> Iterator[str]:
    """Set the isolation level of this thread's connection."""
    connections["default"].close()
    if request.param != "default":
        statement = (
            "SET default_transaction_isolation TO 'repeatable read'"
            if database == "postgresql"
            else "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
        )
        with connection.cursor() as cursor:
            cursor.execute(statement)
    yield request.param
    connections["default"].close()


def elsewhere(work: Callable[[], object]) -> None:
    """Run ``work`` on a separate connection and wait for it."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told to the test
            errors.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def bodies() -> int:
    """Count the bodies that ran."""
    return Effect.objects.count()


def test_everything_a_signal_causes_commits_with_the_caller(settings: Any) -> None:
    settings.GENEVA_DRIVE = IMMEDIATE
    workflow = Parcel.start()
    assert_waiting_for(workflow, "scanned")

    with transaction.atomic():
        workflow.signal("scanned", 1)
        with transaction.atomic():
            assert active(workflow).state == "scheduled"
        assert bodies() == 1, "nothing is dispatched before the commit"

    assert_state(workflow, "finished")
    assert notes(workflow)[1] == ("ship", "1")


def test_everything_a_signal_causes_rolls_back_with_the_caller(settings: Any) -> None:
    settings.GENEVA_DRIVE = IMMEDIATE
    workflow = Parcel.start()

    with transaction.atomic():
        workflow.signal("scanned", 1, idempotency_key="evt")
        transaction.set_rollback(True)

    assert_waiting_for(workflow, "scanned")
    assert signal_rows(workflow) == []
    assert bodies() == 1
    assert not workflow.signal("scanned", 1, idempotency_key="evt").duplicate
    assert_state(workflow, "finished")


def test_a_savepoint_that_rolls_back_discards_its_signal() -> None:
    workflow = at_gate(Parcel)

    with transaction.atomic():
        workflow.signal("other")
        with transaction.atomic():
            workflow.signal("scanned")
            transaction.set_rollback(True)

    assert_waiting_for(workflow, "scanned")
    assert [name for name, *_ in signal_rows(workflow)] == ["other"]


def test_a_matcher_that_raises_leaves_the_callers_transaction_usable() -> None:
    workflow = at_gate(BadMatcher)

    with transaction.atomic():
        with pytest.raises(TypeError):
            workflow.signal("go", 5)
        Effect.objects.create(workflow="caller", step="after")

    assert Effect.objects.filter(workflow="caller").exists()
    assert signal_rows(workflow) == []


@SERVERS
def test_the_same_key_twice_in_one_block_leaves_it_usable(isolation: str) -> None:
    workflow = at_gate(Parcel)

    with transaction.atomic():
        first = workflow.signal("scanned", 1, idempotency_key="evt")
        again = workflow.signal("scanned", 2, idempotency_key="evt")
        Effect.objects.create(workflow="caller", step="after")

    assert (again.pk, again.payload, again.duplicate) == (first.pk, 1, True)
    assert Effect.objects.filter(workflow="caller").exists()
    assert signal_rows(workflow) == [("scanned", "claimed", 1, 0)]


@SERVERS
@pytest.mark.parametrize("stage", ["before its gate", "waiting", "paused", "finished", "canceled"])
def test_a_key_that_was_delivered_after_the_blocks_snapshot_leaves_it_usable(
    isolation: str, stage: str
) -> None:
    workflow: Workflow = Parcel.start() if stage == "before its gate" else at_gate(Parcel)
    if stage == "paused":
        workflow.pause()

    def deliver() -> None:
        mine = Parcel.objects.get(pk=workflow.pk)
        mine.signal("scanned", 1, idempotency_key="evt")
        if stage == "finished":
            run_to_end(mine)
        elif stage == "canceled":
            mine.cancel()

    with transaction.atomic():
        assert Signal.objects.count() == 0  # If there is a snapshot, it is taken here.
        elsewhere(deliver)
        again = workflow.signal("scanned", 2, idempotency_key="evt")
        Effect.objects.create(workflow="caller", step="after")

    assert (again.payload, again.duplicate) == (1, True)
    assert Signal.objects.get().pk == again.pk
    assert Effect.objects.filter(workflow="caller").exists()


@SERVERS
def test_resume_delivers_a_signal_newer_than_its_snapshot(isolation: str, database: str) -> None:
    workflow = at_gate(Parcel)
    workflow.pause()

    def deliver() -> None:
        Parcel.objects.get(pk=workflow.pk).signal("scanned", 1)

    # PostgreSQL refuses to use a snapshot that is older than the row. Nothing is lost.
    refuses = isolation == "repeatable read" and database == "postgresql"
    with transaction.atomic():
        assert Signal.objects.count() == 0  # If there is a snapshot, it is taken here.
        elsewhere(deliver)
        with pytest.raises(OperationalError, match="could not serialize") if refuses else nullcontext():
            workflow.resume()
    if refuses:
        workflow.resume()

    run_to_end(workflow)
    assert_state(workflow, "finished")
    assert ("ship", "1") in notes(workflow)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_signal_is_written_to_the_database_of_its_workflow() -> None:
    workflow = run_to_end(Parcel.start(using="other"))

    with transaction.atomic(using="other"):
        workflow.signal("scanned", 1, idempotency_key="evt")
        assert workflow.signal("scanned", 1, idempotency_key="evt").duplicate
    run_to_end(workflow)

    assert_state(workflow, "finished")
    assert Signal.objects.using("other").get().state == "consumed"
    assert not Signal.objects.using("default").exists()
