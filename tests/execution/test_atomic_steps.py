"""Steps whose body and completion share one transaction."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, OperationalError, connection, connections, transaction
from django.db.transaction import TransactionManagementError

from geneva_drive import InvalidStateError, StepExecution, Workflow, step
from geneva_drive.execution import executor, prepare
from geneva_drive.execution.runner import Runner
from geneva_drive.testing import assert_state, assert_step, crash_at
from tests.execution.support import Free, active, history, run, trace
from tests.testapp.models import Effect

pytestmark = pytest.mark.django_db

act: Any = None


class WritesAtOnce(Free):
    @step(atomic=True)
    def writes(self) -> None:
        trace.append(connection.in_atomic_block)
        Effect.objects.create(workflow=str(self.pk), step="writes")
        act(self)

    @step
    def after(self) -> None:
        trace.append("after")


@pytest.fixture
def atomic(monkeypatch: pytest.MonkeyPatch) -> Any:
    def prepared(does: Any = lambda workflow: None) -> Workflow:
        monkeypatch.setitem(globals(), "act", does)
        return WritesAtOnce.start()

    return prepared


def effects() -> int:
    return Effect.objects.count()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("inline_continuation", [False, True])
def test_body_and_completion_are_one_transaction(atomic: Any, inline_continuation: bool) -> None:
    workflow = atomic()

    run(workflow, inline_continuation=inline_continuation)

    assert trace == [True] + ["after"] * inline_continuation
    assert effects() == 1
    assert history(workflow)[0] == ("writes", "completed", "success")


def test_an_exception_rolls_back_the_writes_and_is_still_recorded(atomic: Any) -> None:
    def fail(workflow: Any) -> None:
        raise ValueError("no")

    workflow = atomic(fail)

    with pytest.raises(ValueError, match="no"):
        run(workflow)

    assert effects() == 0
    assert assert_step(workflow, "writes", "failed", "failed").error_message == "no"
    assert_state(workflow, "paused")


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("pause", "paused"),
        ("cancel", "canceled"),
        ("finish", "finished"),
        ("skip", "ready"),
        ("reattempt", "ready"),
    ],
)
def test_flow_control_commits_the_writes(atomic: Any, word: str, state: str) -> None:
    workflow = atomic(lambda w: getattr(w, word)())

    run(workflow)

    assert effects() == 1
    assert_state(workflow, state)


def test_flow_control_inside_a_nested_atomic_block_is_refused(atomic: Any) -> None:
    def deeper(workflow: Any) -> None:
        with transaction.atomic():
            workflow.pause()

    workflow = atomic(deeper)

    with pytest.raises(InvalidStateError, match="atomic"):
        run(workflow)
    assert effects() == 0


def _prepared(workflow: Workflow) -> Any:
    claimed = prepare.prepare(active(workflow).pk, using="default", runner=Runner())
    assert claimed is not None
    return claimed


def test_a_fenced_atomic_step_rolls_back(atomic: Any) -> None:
    workflow = atomic()
    claimed = _prepared(workflow)
    # Recovered and retried by another process.
    StepExecution.objects.update(attempt_token="00000000-0000-0000-0000-000000000001")

    assert executor.run(claimed, Runner()) == 1

    assert effects() == 0
    assert history(workflow) == [("writes", "in_progress", None)]


def test_writes_are_kept_when_the_workflow_was_canceled_meanwhile(atomic: Any) -> None:
    workflow = atomic()
    claimed = _prepared(workflow)
    workflow.cancel()

    executor.run(claimed, Runner())

    assert effects() == 1
    assert history(workflow) == [("writes", "canceled", "canceled")]
    assert_state(workflow, "canceled")


def test_a_transaction_that_is_marked_for_rollback_fails_the_step(atomic: Any) -> None:
    def swallow(workflow: Any) -> None:
        transaction.set_rollback(True)

    workflow = atomic(swallow)

    with pytest.raises(TransactionManagementError, match="marked for rollback"):
        run(workflow)

    assert effects() == 0
    assert history(workflow) == [("writes", "failed", "failed")]
    assert_state(workflow, "paused")


def test_a_caught_database_error_fails_the_step_if_it_broke_the_transaction(
    atomic: Any,
) -> None:
    def swallow(workflow: Any) -> None:
        try:
            Effect(pk=Effect.objects.get().pk, step="again").save(force_insert=True)
        except IntegrityError:
            trace.append("caught")

    workflow = atomic(swallow)

    # Django marks the innermost block; PostgreSQL also refuses all following statements.
    with pytest.raises(DatabaseError):
        run(workflow)

    assert trace == [True, "caught"]
    assert effects() == 0
    assert_state(workflow, "paused")


def test_a_process_that_dies_before_the_commit_leaves_no_writes(atomic: Any) -> None:
    workflow = atomic()

    with crash_at("finalizing"):
        run(workflow)

    assert effects() == 0
    assert history(workflow) == [("writes", "in_progress", None)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.only_on("postgresql", reason="only there a constraint can wait for the commit")
def test_a_commit_that_fails_is_recorded_in_another_transaction(atomic: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE testapp_effect ADD CONSTRAINT tried UNIQUE (note) DEFERRABLE INITIALLY DEFERRED"
        )
    try:
        Effect.objects.create(workflow="another", step="another", note="same")
        workflow = atomic(lambda w: Effect.objects.update(note="same"))

        with pytest.raises(IntegrityError):
            run(workflow)

        assert list(Effect.objects.values_list("step", flat=True)) == ["another"]
        assert (
            assert_step(workflow, "writes", "failed", "failed").error_class
            == "django.db.utils.IntegrityError"
        )
        assert_state(workflow, "paused")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE testapp_effect DROP CONSTRAINT tried")


@pytest.mark.django_db(transaction=True)
@pytest.mark.only_on("postgresql", "mysql", "mariadb", reason="SQLite has one writer, so no deadlocks")
def test_a_deadlock_rolls_back_everything_or_nothing(atomic: Any) -> None:
    first, second = (Effect.objects.create(workflow="x", step=name) for name in ("first", "second"))
    other_has_second, both_have_one = threading.Event(), threading.Event()

    def lock(effect: Effect) -> None:
        Effect.objects.filter(pk=effect.pk).update(note="locked")

    def the_other_way_round() -> bool:
        """Return whether it succeeded."""
        try:
            with transaction.atomic():
                # MySQL and MariaDB abort the transaction that has written less.
                Effect.objects.bulk_create(Effect(workflow="y", step="ballast") for _ in range(200))
                lock(second)
                other_has_second.set()
                assert both_have_one.wait(60)
                lock(first)
        except OperationalError:
            return False
        finally:
            connections.close_all()
        return True

    def deadlock(workflow: Any) -> None:
        lock(first)
        futures.append(pool.submit(the_other_way_round))
        assert other_has_second.wait(60)
        both_have_one.set()
        lock(second)

    futures: list[Future[bool]] = []
    error = None
    with ThreadPoolExecutor(1) as pool:
        workflow = atomic(deadlock)
        try:
            run(workflow)
        except OperationalError as given_up:
            error = given_up
        other_came_through = futures[0].result(60)

    # The database chooses which of the two to abort, and PostgreSQL's choice varies.
    assert (error is not None) is other_came_through
    if error is not None:
        assert Effect.objects.filter(step="writes").count() == 0
        assert history(workflow) == [("writes", "failed", "failed")]
        assert_state(workflow, "paused")
    else:
        assert Effect.objects.filter(step="writes").count() == 1
        assert history(workflow)[0] == ("writes", "completed", "success")
