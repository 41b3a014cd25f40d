"""The checks before a body runs, their order, and the effect of each."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import DatabaseError, connection
from django.test import override_settings

from geneva_drive import InvalidStateError, StepExecution, Workflow, cancel_if, removed_step, step
from geneva_drive.execution import executor, prepare
from geneva_drive.execution.executor import execute
from geneva_drive.execution.runner import Runner
from geneva_drive.testing import assert_state, assert_step, run_next_step, run_to_end, travel
from tests.execution.support import Free, active, everything, history, run, trace
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db


class Ordered(Free):
    """Records each condition that is checked."""

    may_proceed_without_hero = False

    @cancel_if
    def withdrawn(self) -> bool:
        trace.append("cancel_if")
        return bool(self.hero.withdrawn)

    def unwanted(self) -> bool:
        trace.append("skip_if")
        return bool(self.metadata and self.metadata.get("unwanted"))

    @step(skip_if="unwanted")
    def first(self) -> None:
        trace.append("first")

    buried = removed_step()

    def wanted(self) -> bool:
        trace.append("run_if")
        return bool(self.hero.number == "run")

    @step(run_if="wanted")
    def second(self) -> None:
        trace.append("second")


def test_the_classs_conditions_are_checked_before_the_steps_and_then_the_body_runs() -> None:
    workflow = Ordered.start(Order.objects.create(number="run"))

    run_to_end(workflow)

    assert trace == ["cancel_if", "skip_if", "first", "cancel_if", "run_if", "second"]
    assert_state(workflow, "finished")


def test_a_step_whose_skip_if_is_true_is_skipped_and_its_body_does_not_run() -> None:
    workflow = Ordered.start(Order.objects.create(number="run"), metadata={"unwanted": True})

    run_to_end(workflow)

    assert [name for name in trace if name in ("first", "second")] == ["second"]
    assert history(workflow) == [("first", "skipped", "skipped"), ("second", "completed", "success")]


def test_run_if_is_the_inverse_of_skip_if() -> None:
    workflow = Ordered.start(Order.objects.create(number="no"))

    run_to_end(workflow)

    assert_step(workflow, "second", "skipped", "skipped")
    assert_state(workflow, "finished")


def test_a_condition_is_checked_at_each_attempt() -> None:
    class AskedAgain(Free):
        def enough(self) -> bool:
            return len(trace) >= 2

        @step(skip_if="enough")
        def again(self) -> None:
            trace.append("ran")
            self.reattempt()

    workflow = AskedAgain.start()

    run_to_end(workflow)

    assert trace == ["ran", "ran"]
    assert [outcome for _, _, outcome in history(workflow)] == ["reattempted", "reattempted", "skipped"]


@pytest.mark.parametrize(("given", "runs"), [(True, False), (False, True)])
def test_a_condition_can_be_a_constant(given: bool, runs: bool) -> None:
    class Constant(Free):
        @step(skip_if=given)
        def only(self) -> None:
            trace.append("ran")

    run_to_end(Constant.start())

    assert bool(trace) is runs


def test_cancel_if_ends_the_workflow_and_says_why() -> None:
    workflow = Ordered.start(Order.objects.create(withdrawn=True))

    run_next_step(workflow)

    assert trace == ["cancel_if"]
    execution = assert_step(workflow, "first", "canceled", "canceled")
    assert execution.metadata == {"reason": "a cancel_if condition holds"}
    assert execution.finished_at is not None
    assert_state(workflow, "canceled")
    assert workflow.next_step_name is None


def test_cancel_if_is_checked_before_every_step() -> None:
    order = Order.objects.create(number="run")
    workflow = Ordered.start(order)
    run_next_step(workflow)
    Order.objects.update(withdrawn=True)

    run_next_step(workflow)

    assert_step(workflow, "second", "canceled", "canceled")


def test_a_missing_hero_cancels_the_workflow_before_any_condition_is_checked() -> None:
    order = Order.objects.create()
    workflow = Ordered.start(order)
    order.delete()

    run_next_step(workflow)

    assert trace == []
    assert assert_step(workflow, "first", "canceled", "canceled").metadata == {
        "reason": "the hero is missing"
    }
    assert_state(workflow, "canceled")


def test_with_may_proceed_without_hero_a_workflow_continues_after_its_hero_is_deleted() -> None:
    class Proceeds(Free):
        @step
        def only(self) -> None:
            trace.append(self.hero)

    order = Order.objects.create()
    workflow = Proceeds.start(order)
    order.delete()

    run_next_step(workflow)

    assert trace == [None]
    assert_state(workflow, "finished")


def test_a_failing_hero_lookup_is_not_a_missing_hero() -> None:
    class Unreadable(Free):
        may_proceed_without_hero = False

        @step
        def only(self) -> None:
            trace.append("ran")

    workflow = Unreadable.start(Order.objects.create())
    # A content type of a model that is no longer installed.
    ContentType.objects.filter(model="order").update(model="gone")
    ContentType.objects.clear_cache()
    try:
        with pytest.raises(LookupError):
            run_next_step(workflow)

        assert trace == []
        execution = assert_step(workflow, "only", "failed", "failed")
        assert execution.error_class == "geneva_drive.exceptions.HeroModelGone"
        assert "testapp.gone" in (execution.error_message or "")
        assert_state(workflow, "paused")
    finally:
        ContentType.objects.clear_cache()


def test_code_without_the_class_does_not_check_the_hero() -> None:
    order = Order.objects.create()
    workflow = Ordered.start(order)
    order.delete()
    Workflow.objects.filter(pk=workflow.pk).update(type="testapp.FromNewerCode")

    run(Workflow.objects.get(pk=workflow.pk))

    assert history(workflow) == [("first", "scheduled", None)]
    assert active(workflow).deferred_since is not None


def test_a_missing_hero_is_detected_before_an_undeclared_step() -> None:
    order = Order.objects.create()
    workflow = Ordered.start(order)
    StepExecution.objects.update(step_name="from_newer_code")
    order.delete()

    run(workflow)

    assert history(workflow) == [("from_newer_code", "canceled", "canceled")]


def test_a_gravestone_is_skipped_before_any_condition_is_checked() -> None:
    workflow = Ordered.start(Order.objects.create(withdrawn=True))
    StepExecution.objects.update(step_name="buried")

    run(workflow)

    assert trace == []
    assert history(workflow) == [("buried", "skipped", "skipped"), ("second", "scheduled", None)]


def test_a_step_that_is_not_due_is_left_unchanged() -> None:
    class Later(Free):
        @step(wait=timedelta(days=3))
        def later(self) -> None:
            trace.append("ran")

    workflow = Later.start()
    before = everything(workflow)

    assert run(workflow) == 0

    assert everything(workflow) == before
    with travel(timedelta(days=3)):
        assert run(workflow) == 1
    assert trace == ["ran"]


@pytest.mark.parametrize("state", ["waiting", "in_progress", "completed", "failed", "canceled", "skipped"])
def test_an_execution_that_is_no_longer_scheduled_is_left_unchanged(state: str) -> None:
    workflow = Ordered.start(Order.objects.create())
    execution = active(workflow)
    StepExecution.objects.update(state=state)
    before = everything(workflow)

    assert execute(execution.pk) == 0

    assert everything(workflow) == before
    assert trace == []


@pytest.mark.parametrize("state", ["performing", "paused", "finished", "canceled"])
def test_an_execution_of_a_workflow_that_is_not_ready_is_left_unchanged(state: str) -> None:
    workflow = Ordered.start(Order.objects.create())
    Workflow.objects.update(state=state)
    before = everything(workflow)

    assert run(workflow) == 0

    assert everything(workflow) == before
    assert trace == []


def test_a_deleted_execution_is_not_an_error() -> None:
    workflow = Ordered.start(Order.objects.create())
    pk = active(workflow).pk
    StepExecution.objects.all().delete()

    assert execute(pk) == 0


def test_a_second_delivery_changes_nothing() -> None:
    workflow = Ordered.start(Order.objects.create(number="run"))
    pk = active(workflow).pk
    run(workflow)
    before = everything(workflow)

    assert execute(pk) == 0

    assert everything(workflow) == before
    assert trace.count("first") == 1


def test_many_skipped_steps_are_handled_in_one_run() -> None:
    class MostlySkipped(Free):
        @step
        def begin(self) -> None:
            trace.append("begin")

        checks = step.series(lambda self: trace.append("check"), waits=50 * [timedelta(0)], skip_if=True)

        @step
        def end(self) -> None:
            trace.append("end")

    workflow = MostlySkipped.start()

    assert run(workflow, inline_continuation=True) == 2

    assert trace == ["begin", "end"]
    assert [state for _, state, _ in history(workflow)].count("skipped") == 50
    assert_state(workflow, "finished")


WORDS = {
    "pause": lambda workflow: workflow.pause(),
    "skip": lambda workflow: workflow.skip(),
    "cancel": lambda workflow: workflow.cancel(),
    "finish": lambda workflow: workflow.finish(),
    "reattempt": lambda workflow: workflow.reattempt(),
    "suspend": lambda workflow: workflow.suspend(),
}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("option", ["skip_if", "cancel_if"])
def test_flow_control_is_refused_in_conditions(word: str, option: str) -> None:
    def condition(workflow: Any) -> bool:
        WORDS[word](workflow)
        return False

    class Deciding(Free):
        looks = cancel_if(condition if option == "cancel_if" else lambda workflow: False)

        @step(skip_if=condition if option == "skip_if" else False)
        def only(self) -> None:
            trace.append("ran")

    workflow = Deciding.start()

    with pytest.raises(InvalidStateError, match="condition or a hook"):
        run(workflow)

    assert trace == []
    assert history(workflow) == [("only", "failed", "failed")]
    assert_state(workflow, "paused")


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_an_error_in_a_condition_starts_and_ends_its_execution(error: BaseException) -> None:
    def condition(workflow: Any) -> bool:
        trace.append("asked")
        raise error

    class Raising(Free):
        @step(skip_if=condition)
        def only(self) -> None:
            trace.append("ran")

    workflow = Raising.start()

    with pytest.raises(type(error)):
        run(workflow)

    first = workflow.executions.order_by("pk")[0]
    assert trace == ["asked"]
    assert first.started_at is not None
    assert first.attempt_token is not None
    assert first.finished_at is not None
    assert first.state == "failed"
    assert first.error_class == f"builtins.{type(error).__name__}"


def test_a_condition_that_ends_the_process_counts_as_a_crash() -> None:
    def condition(workflow: Any) -> bool:
        raise SystemExit(3)

    class Exiting(Free):
        @step(skip_if=condition)
        def only(self) -> None:
            pass

    workflow = Exiting.start()

    for _ in range(3):
        with pytest.raises(SystemExit):
            run(workflow)

    assert [(state, outcome) for _, state, outcome in history(workflow)] == 3 * [("failed", "recovered")]
    assert_state(workflow, "paused")


def failing_query(workflow: Any) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT no_such_column FROM geneva_drive_workflow")
    return False


def test_a_failing_query_in_a_condition_does_not_undo_the_completed_step() -> None:
    class Querying(Free):
        @step
        def done(self) -> None:
            trace.append("done")

        @step(skip_if=failing_query)
        def next(self) -> None:
            trace.append("next")

    workflow = Querying.start()

    with pytest.raises(DatabaseError):
        run(workflow, inline_continuation=True)

    assert trace == ["done"]
    assert history(workflow) == [("done", "completed", "success"), ("next", "failed", "failed")]
    assert_state(workflow, "paused")
    assert workflow.next_step_name == "next"


def test_a_failing_query_in_a_condition_of_the_first_step_is_recorded_too() -> None:
    class QueryingFirst(Free):
        @step(skip_if=failing_query)
        def only(self) -> None:
            trace.append("ran")

    workflow = QueryingFirst.start()

    with pytest.raises(DatabaseError, match="no_such_column"):
        run(workflow)

    assert history(workflow) == [("only", "failed", "failed")]
    assert "no_such_column" in (workflow.executions.get().error_message or "")


def test_an_error_in_a_condition_is_fenced_like_a_body() -> None:
    class Lost(Free):
        @step(skip_if=lambda workflow: 1 / 0)
        def only(self) -> None:
            pass

    workflow = Lost.start()
    claimed = prepare.prepare(active(workflow).pk, using="default", runner=Runner())
    assert claimed is not None
    workflow.cancel()

    with pytest.raises(ZeroDivisionError):
        executor.run(claimed, Runner())

    assert history(workflow) == [("only", "canceled", "canceled")]
    assert workflow.executions.get().error_class == "builtins.ZeroDivisionError"
    assert_state(workflow, "canceled")


@override_settings(GENEVA_DRIVE={"UNDEFINED_STEP_GRACE": timedelta(0)})
@pytest.mark.parametrize("name", ["__class__", "save", "hero", "_geneva", "nothing"])
def test_a_step_name_cannot_refer_to_an_attribute_that_is_not_a_step(name: str) -> None:
    workflow = Ordered.start(Order.objects.create())
    StepExecution.objects.update(step_name=name)
    Workflow.objects.update(next_step_name=name)

    assert run(workflow) == 0

    assert history(workflow) == [(name, "failed", "failed")]
    assert workflow.executions.get().error_class == "geneva_drive.exceptions.StepNotDefinedError"
    assert_state(workflow, "paused")


@override_settings(GENEVA_DRIVE={"UNDEFINED_STEP_GRACE": timedelta(0)})
@pytest.mark.parametrize("label", ["os.system", "builtins.eval", "geneva_drive.Workflow", "testapp.Free", ""])
def test_a_type_cannot_refer_to_a_class_that_is_not_a_workflow(label: str) -> None:
    workflow = Ordered.start(Order.objects.create())
    Workflow.objects.update(type=label)
    stored = Workflow.objects.get()

    assert type(stored) is Workflow
    assert run(stored) == 0
    assert history(workflow) == [("first", "failed", "failed")]
    assert workflow.executions.get().error_class == "geneva_drive.exceptions.WorkflowNotDefinedError"
    stored.cancel()
    assert_state(workflow, "canceled")
