"""Rows that this code cannot run: deferred for a limited time, then paused, without blocking others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection
from django.test import override_settings

from geneva_drive import StepExecution, StepNotDefinedError, Workflow, clock, step
from geneva_drive.execution.executor import execute
from geneva_drive.testing import assert_state, run_due, run_to_end, travel
from tests.execution.support import Free, active, history, run, trace

pytestmark = pytest.mark.django_db

GRACE = timedelta(minutes=5)


class Declared(Free):
    @step
    def one(self) -> None:
        trace.append("one")

    @step
    def two(self) -> None:
        trace.append("two")


def of_newer_step() -> Workflow:
    workflow = Declared.start()
    StepExecution.objects.filter(workflow_id=workflow.pk).update(step_name="from_newer_code")
    Workflow.objects.filter(pk=workflow.pk).update(next_step_name="from_newer_code")
    return workflow


def of_newer_class() -> Workflow:
    workflow = Declared.start()
    Workflow.objects.filter(pk=workflow.pk).update(type="testapp.FromNewerCode")
    stored: Workflow = Workflow.objects.get(pk=workflow.pk)
    return stored


UNKNOWN: dict[str, tuple[Callable[[], Workflow], str]] = {
    "step": (of_newer_step, "geneva_drive.exceptions.StepNotDefinedError"),
    "class": (of_newer_class, "geneva_drive.exceptions.WorkflowNotDefinedError"),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_an_undeclared_step_is_deferred_and_says_why(what: str) -> None:
    make, error_class = UNKNOWN[what]
    workflow = make()
    before = clock.now("default")

    assert run(workflow) == 0

    row = active(workflow)
    assert (row.state, row.error_class) == ("scheduled", error_class)
    assert row.deferred_since is not None
    assert before < clock.utc(row.scheduled_for) <= before + GRACE
    assert_state(workflow, "ready")


@pytest.mark.parametrize("what", UNKNOWN)
def test_after_the_grace_period_it_fails_and_the_workflow_pauses(what: str) -> None:
    make, error_class = UNKNOWN[what]
    workflow = make()
    name = active(workflow).step_name
    run(workflow)

    with travel(GRACE):
        run(workflow)

    assert history(workflow) == [(name, "failed", "failed")]
    row = workflow.executions.get()
    assert row.error_class == error_class
    assert row.finished_at is not None
    assert_state(workflow, "paused")
    assert workflow.next_step_name == name


def test_the_grace_period_starts_with_the_first_deferral_and_ends_after_a_bounded_number() -> None:
    workflow = of_newer_step()
    began = clock.now("default")
    run(workflow)
    since = active(workflow).deferred_since

    looks, ahead = 1, timedelta(0)
    while active_or_none(workflow) is not None:
        ahead = clock.utc(active(workflow).scheduled_for) - clock.now("default") + timedelta(milliseconds=1)
        with travel(ahead):
            run(workflow)
        looks += 1
        assert looks < 200

    row = workflow.executions.get()
    assert row.deferred_since == since
    assert ahead + (clock.now("default") - began) >= GRACE
    assert ahead <= GRACE + timedelta(seconds=5)
    assert looks > 5
    assert_state(workflow, "paused")


def active_or_none(workflow: Workflow) -> StepExecution | None:
    return StepExecution.objects.active().filter(workflow_id=workflow.pk).first()


@override_settings(GENEVA_DRIVE={"UNDEFINED_STEP_GRACE": timedelta(0)})
@pytest.mark.parametrize("what", UNKNOWN)
def test_without_a_grace_period_it_pauses_at_once(what: str) -> None:
    workflow = UNKNOWN[what][0]()

    run(workflow)

    assert_state(workflow, "paused")
    assert [state for _, state, _ in history(workflow)] == ["failed"]


def test_the_message_lists_the_steps_to_resume_at_and_the_other_options() -> None:
    workflow = of_newer_step()

    run(workflow)

    message = active(workflow).error_message or ""
    for part in (
        "from_newer_code",
        "one, two",
        "resume_at()",
        "cancel()",
        "from_newer_code = removed_step()",
    ):
        assert part in message


def test_code_that_declares_the_step_runs_it_and_clears_the_error() -> None:
    workflow = of_newer_step()
    run(workflow)

    class Declared(Free):
        @step
        def from_newer_code(self) -> None:
            trace.append("newer")

    # As an instance of the class that is now declared.
    StepExecution.objects.update(scheduled_for=clock.local(clock.now("default")))
    again = Workflow.objects.get(pk=workflow.pk)
    assert type(again) is Declared
    run(again)

    assert trace == ["newer"]
    row = again.executions.get()
    assert (row.state, row.error_class, row.error_message) == ("completed", None, None)


def test_resume_gives_a_second_deploy_its_own_grace_period() -> None:
    workflow = of_newer_step()
    run(workflow)
    workflow.pause()

    class Declared(Free):
        @step
        def from_newer_code(self) -> None:
            pass

    again = Workflow.objects.get(pk=workflow.pk)
    again.resume()

    assert active(again).deferred_since is None
    assert active(again).error_class is None


def test_one_bad_row_does_not_stop_the_others() -> None:
    workflows = [Declared.start() for _ in range(5)]
    Workflow.objects.filter(pk=workflows[1].pk).update(type="testapp.FromNewerCode")

    run_due()

    for workflow in workflows:
        workflow.refresh_from_db()
    assert [workflow.state for workflow in workflows] == [
        "finished",
        "ready",
        "finished",
        "finished",
        "finished",
    ]


@contextmanager
def refusing_to_begin(name: str) -> Iterator[None]:
    """Let the database refuse to start executions of this step, as an unforeseeable error would."""
    table, condition = "geneva_drive_stepexecution", f"NEW.step_name = '{name}' AND NEW.state = 'in_progress'"
    create = {
        "sqlite": [
            f"CREATE TRIGGER poison BEFORE UPDATE ON {table} WHEN {condition} "
            "BEGIN SELECT RAISE(ABORT, 'poisoned \N{PARTY POPPER}'); END",
            f"CREATE TRIGGER poison_new BEFORE INSERT ON {table} WHEN {condition} "
            "BEGIN SELECT RAISE(ABORT, 'poisoned'); END",
        ],
        "postgresql": [
            "CREATE FUNCTION poison() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'poisoned'; END $$ "
            "LANGUAGE plpgsql",
            f"CREATE TRIGGER poison BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW WHEN ({condition}) "
            "EXECUTE FUNCTION poison()",
        ],
        "mysql": [
            f"CREATE TRIGGER {trigger} BEFORE {when} ON {table} FOR EACH ROW IF {condition} THEN "
            "SIGNAL SQLSTATE '23000' SET MESSAGE_TEXT = 'poisoned'; END IF"
            for trigger, when in (("poison", "UPDATE"), ("poison_new", "INSERT"))
        ],
    }
    drop = {
        "sqlite": ["DROP TRIGGER poison", "DROP TRIGGER poison_new"],
        "postgresql": [f"DROP TRIGGER poison ON {table}", "DROP FUNCTION poison()"],
        "mysql": ["DROP TRIGGER poison", "DROP TRIGGER poison_new"],
    }

    def run_all(statements: list[str]) -> None:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    run_all(create[connection.vendor])
    try:
        yield
    finally:
        run_all(drop[connection.vendor])


@pytest.mark.django_db(transaction=True)
def test_a_row_that_cannot_be_prepared_is_deferred_like_an_undeclared_step() -> None:
    bad, good = Declared.start(), Declared.start()
    StepExecution.objects.filter(workflow_id=good.pk).update(step_name="two")

    with refusing_to_begin("one"):
        run_due()
        row = active(bad)
        assert (row.state, row.deferred_since is not None) == ("scheduled", True)
        assert "poisoned" in (row.error_message or "")
        assert_state(good, "finished")

        with travel(GRACE):
            run(bad)

    assert history(bad) == [("one", "failed", "failed")]
    assert_state(bad, "paused")
    bad.resume()
    run_to_end(bad)
    assert_state(bad, "finished")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("atomic", [False, True])
def test_a_completed_step_stays_completed_when_the_next_cannot_be_prepared(atomic: bool) -> None:
    class Followed(Free):
        @step(atomic=atomic)
        def done(self) -> None:
            trace.append("done")

        @step
        def poisoned(self) -> None:
            trace.append("poisoned")

    workflow = Followed.start()

    with refusing_to_begin("poisoned"):
        execute(active(workflow).pk)

        assert history(workflow) == [("done", "completed", "success"), ("poisoned", "scheduled", None)]
        execute(active(workflow).pk)
        assert active(workflow).deferred_since is not None

    StepExecution.objects.update(scheduled_for=clock.local(clock.now("default")))
    execute(active(workflow).pk)
    assert trace == ["done", "poisoned"]
    assert_state(workflow, "finished")


@pytest.mark.parametrize("column", ["metadata", "job_options", "cursor"])
def test_a_stored_value_of_a_newer_version_does_not_stop_steps_that_do_not_use_it(column: str) -> None:
    workflow = Declared.start()
    table = StepExecution if column == "cursor" else Workflow
    # As newer code would write it; this version cannot read the type.
    with connection.cursor() as cursor:
        quoted = connection.ops.quote_name(column)
        cursor.execute(f"UPDATE {table._meta.db_table} SET {quoted} = %s", ['{"$quaternion": "1+i"}'])

    run(workflow)

    assert history(workflow)[0] == ("one", "completed", "success")
    if column == "job_options":
        # The next step needs them, so the workflow pauses.
        assert_state(workflow, "paused")
    else:
        run_to_end(workflow)
        assert_state(workflow, "finished")


def test_operators_can_act_on_a_deferred_row() -> None:
    for act, state in (("cancel", "canceled"), ("pause", "paused")):
        workflow = of_newer_step()
        run(workflow)
        getattr(workflow, act)()
        assert_state(workflow, state)
    workflow = of_newer_step()
    run(workflow)
    with pytest.raises(StepNotDefinedError):
        workflow.skip()
