"""Steps removed or renamed while workflows are in flight."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from geneva_drive import StepExecution, StepNotDefinedError, Workflow, clock, removed_step, step
from geneva_drive.execution.recovery import recover_one
from geneva_drive.lifecycle import scheduling
from geneva_drive.testing import assert_state, assert_step, run_next_step, run_to_end
from tests.execution.support import Free, active, history, run, trace

pytestmark = pytest.mark.django_db


def before_deploy() -> Any:
    class Deployed(Free):
        @step
        def one(self) -> None:
            trace.append("one")

        @step(wait=timedelta(days=1))
        def two(self) -> None:
            trace.append("two")

        @step
        def three(self) -> None:
            trace.append("three")

        @step
        def four(self) -> None:
            trace.append("four")

    return Deployed


def buried(*names: str) -> Any:
    """Return the class after the deploy, in which these steps are gravestones."""

    def body(name: str) -> Any:
        return removed_step() if name in names else step(lambda self: trace.append(name))

    class Deployed(Free):
        one = body("one")
        two = body("two")
        three = body("three")
        four = body("four")

    return Deployed


def deployed(workflow: Workflow) -> Any:
    """Return the workflow as the code after the deploy loads it."""
    return Workflow.objects.get(pk=workflow.pk)


def at_two() -> Workflow:
    workflow: Workflow = run_next_step(before_deploy().start())
    return workflow


def test_an_execution_scheduled_before_the_deploy_is_skipped_when_due_and_the_next_step_runs() -> None:
    workflow = at_two()
    due = active(workflow).scheduled_for
    buried("two")

    workflow = deployed(workflow)
    assert run(workflow) == 0
    assert active(workflow).scheduled_for == due
    run_to_end(workflow)

    assert history(workflow)[1] == ("two", "skipped", "skipped")
    assert trace == ["one", "three", "four"]
    assert_state(workflow, "finished")


def test_several_gravestones_in_a_row_are_skipped() -> None:
    workflow = at_two()
    buried("two", "three")

    workflow = deployed(workflow)
    run_next_step(workflow)

    assert history(workflow)[1:] == [("two", "skipped", "skipped"), ("four", "scheduled", None)]


def test_a_gravestone_at_the_end_finishes_the_workflow() -> None:
    workflow = at_two()
    buried("two", "three", "four")

    workflow = deployed(workflow)
    run_next_step(workflow)

    assert_state(workflow, "finished")
    assert history(workflow)[1:] == [("two", "skipped", "skipped")]


def test_no_execution_is_created_for_a_gravestone_by_a_start_a_step_or_an_operator() -> None:
    cls = buried("one", "three")

    started = cls.start()
    assert active(started).step_name == "two"
    run_next_step(started)
    assert active(started).step_name == "four"
    with pytest.raises(StepNotDefinedError, match="a removed step"):
        started.pause().resume_at("three")
    with pytest.raises(StepNotDefinedError, match="removed step"):
        scheduling.build(started, cls.steps["three"], now=clock.now("default"))


def test_no_execution_is_created_by_a_reattempt_of_a_step_that_was_removed_while_it_ran() -> None:
    class Deployed(Free):
        @step
        def one(self) -> None:
            class Deployed(Free):
                one = removed_step()

                @step
                def two(self) -> None:
                    trace.append("two")

            del Deployed
            self.reattempt()

        @step
        def two(self) -> None:
            pass

    workflow = Deployed.start()

    run(workflow, inline_continuation=True)

    assert history(deployed(workflow))[0] == ("one", "completed", "reattempted")
    assert history(workflow)[1][0] == "two"


@pytest.mark.parametrize("control", ["resume", "skip"])
def test_a_paused_workflow_with_an_execution_of_a_gravestone_continues_on_resume(control: str) -> None:
    workflow = at_two().pause()
    buried("two")
    workflow = deployed(workflow)

    getattr(workflow, control)()
    run_to_end(workflow)

    assert_step(workflow, "two", "skipped", "skipped")
    assert trace == ["one", "three", "four"]


@pytest.mark.parametrize("control", ["resume", "skip"])
@pytest.mark.parametrize(("names", "state"), [(["two"], "ready"), (["two", "three", "four"], "finished")])
def test_a_gravestone_as_next_step_without_an_execution_is_skipped(
    control: str, names: list[str], state: str
) -> None:
    workflow = at_two()
    StepExecution.objects.filter(pk=active(workflow).pk).update(state="failed")
    Workflow.objects.filter(pk=workflow.pk).update(state="paused")
    buried(*names)
    workflow = deployed(workflow)

    getattr(workflow, control)()

    assert_state(workflow, state)
    assert workflow.next_step_name == ("three" if state == "ready" else None)
    if state == "ready":
        assert active(workflow).step_name == "three"
    assert StepExecution.objects.filter(workflow_id=workflow.pk, step_name="two").count() == 1


def test_a_gravestone_runs_neither_an_inherited_nor_a_former_body() -> None:
    class Parent(Free):
        @step
        def one(self) -> None:
            trace.append("of the parent")

        @step
        def two(self) -> None:
            trace.append("two")

    class Child(Parent):
        one = removed_step()

    workflow = run_to_end(Child.start())

    assert trace == ["two"]
    assert_state(workflow, "finished")


# -- the report on a class


def test_the_report_counts_all_rows_of_ongoing_workflows_at_the_gravestones() -> None:
    waiting = at_two()
    beyond = run_next_step(run_next_step(before_deploy().start()))
    ended = run_to_end(before_deploy().start())
    cls = buried("two", "four")

    assert cls.removed_steps_in_flight() == {"two": 2}

    deployed(waiting).cancel()
    assert cls.removed_steps_in_flight() == {"two": 1}
    run_to_end(deployed(beyond))
    assert cls.removed_steps_in_flight() == {}
    assert ended.state == "finished"


def test_the_report_does_not_count_rows_of_other_classes() -> None:
    at_two()

    class Another(Free):
        two = removed_step()

        @step
        def other(self) -> None:
            pass

    assert Another.removed_steps_in_flight() == {}
    assert before_deploy().removed_steps_in_flight() == {}


def test_the_report_counts_rows_of_former_types() -> None:
    workflow = at_two()
    Workflow.objects.filter(pk=workflow.pk).update(type="testapp.OldName")

    class NewName(Free):
        former_types = ["testapp.OldName"]

        @step
        def one(self) -> None:
            pass

        two = removed_step()

    assert NewName.removed_steps_in_flight() == {"two": 1}


# -- renaming


def renamed() -> Any:
    class Deployed(Free):
        @step
        def one(self) -> None:
            trace.append("one")

        @step(formerly=["two", "deux"])
        def second(self) -> None:
            trace.append("second")
            if "again" in trace:
                trace.remove("again")
                self.reattempt()

        @step
        def three(self) -> None:
            trace.append("three")

    return Deployed


def test_an_execution_with_a_former_name_runs_the_renamed_step() -> None:
    workflow = at_two()
    renamed()

    workflow = run_to_end(deployed(workflow))

    assert trace == ["one", "second", "three"]
    assert history(workflow)[1:] == [("two", "completed", "success"), ("three", "completed", "success")]


def test_the_execution_after_a_former_name_has_the_new_name() -> None:
    workflow = at_two()
    renamed()
    trace.append("again")

    workflow = run_next_step(deployed(workflow))

    assert history(workflow)[1:] == [("two", "completed", "reattempted"), ("second", "scheduled", None)]
    assert workflow.next_step_name == "second"


@pytest.mark.parametrize("act", ["resume", "skip", "resume_at"])
def test_controls_accept_a_former_name(act: str) -> None:
    workflow = at_two().pause()
    renamed()
    workflow = deployed(workflow)

    if act == "resume_at":
        workflow.resume_at("deux")
    else:
        getattr(workflow, act)()
    run_to_end(workflow)

    assert_state(workflow, "finished")
    assert trace == (["one", "three"] if act == "skip" else ["one", "second", "three"])


def test_the_count_of_crashes_survives_a_rename() -> None:
    workflow = at_two()
    row = active(workflow)
    StepExecution.objects.filter(pk=row.pk).update(state="in_progress", crashes=1)
    Workflow.objects.filter(pk=workflow.pk).update(state="performing")
    renamed()

    assert recover_one(row.pk, workflow.pk, None, using="default", why="tried", still_dead=lambda: True)

    again = active(workflow)
    assert (again.step_name, again.crashes) == ("second", 2)


def test_a_success_resets_the_count_of_crashes() -> None:
    workflow = before_deploy().start()
    StepExecution.objects.update(crashes=2)

    run(workflow)

    assert active(workflow).crashes == 0


def test_a_class_finds_its_rows_by_their_former_type_and_runs_them() -> None:
    workflow = at_two()
    Workflow.objects.filter(pk=workflow.pk).update(type="testapp.OldName")

    class NewName(Free):
        former_types = ["testapp.OldName"]

        @step
        def two(self) -> None:
            trace.append("two of the new one")

    found = NewName.objects.get(pk=workflow.pk)
    assert type(deployed(workflow)) is NewName
    run_to_end(found)

    assert trace == ["one", "two of the new one"]
    assert_state(found, "finished")
