"""What happens after an exception in a step: its policy decides, and process-ending exceptions are crashes."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from geneva_drive import ExceptionPolicy, on_exception, step
from geneva_drive.execution import executor
from geneva_drive.testing import assert_state, assert_step, run_next_step, run_to_end
from tests.execution.scripted import Busy, FailsShort, Scripted, play, rows
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db


class FailsAndEnds(Scripted):
    exception_policies: ClassVar[list[Any]] = [
        ExceptionPolicy("pause", matching=Busy),
        ExceptionPolicy("cancel", matching=KeyError),
        ExceptionPolicy("skip", matching=[OSError, "decimal.DecimalException"]),
    ]

    @step
    def work(self) -> None:
        self.script(self)

    @step
    def after(self) -> None: ...


@pytest.mark.parametrize(
    ("error", "state", "outcome", "becomes"),
    [
        (Busy("x"), "failed", "failed", "paused"),
        (KeyError("x"), "failed", "canceled", "canceled"),
        (OSError("x"), "skipped", "skipped", "finished"),
    ],
)
def test_each_policy_action_has_its_effect(error: Exception, state: str, outcome: str, becomes: str) -> None:
    workflow = run_to_end(play(FailsAndEnds, error))

    assert_state(workflow, becomes)
    execution = assert_step(workflow, "work", state, outcome)
    assert execution.error_class == f"{type(error).__module__}.{type(error).__qualname__}"
    assert execution.finished_at is not None
    assert workflow.executions.filter(step_name="after").exists() is (becomes == "finished")


def test_a_dotted_name_is_imported_when_it_is_needed() -> None:
    from decimal import InvalidOperation

    assert_state(run_to_end(play(FailsAndEnds, InvalidOperation())), "finished")


def test_without_a_policy_the_workflow_pauses_and_the_error_is_raised_after_the_commit() -> None:
    workflow = play(FailsAndEnds, TypeError("nobody thought of it"))

    with pytest.raises(TypeError, match="nobody thought of it"):
        run_next_step(workflow)

    assert_state(workflow, "paused")
    assert_step(workflow, "work", "failed", "failed")


def test_after_an_exception_there_is_no_inline_continuation() -> None:
    workflow = play(FailsAndEnds, OSError())
    (row,) = rows(workflow)

    assert executor.execute(row.pk) == 1

    assert_state(workflow, "ready")
    assert_step(workflow, "after", "scheduled")


# -- atomic steps


class FailsAtomic(Scripted):
    @step(atomic=True, on_exception=ExceptionPolicy("reattempt", max_reattempts=2, terminal_action="skip"))
    def work(self) -> None:
        Order.objects.create(number="written")
        self.script(self)

    @on_exception(Busy)
    def never(self, error: Exception) -> None:
        raise AssertionError("the step's own policy comes first")


def test_an_atomic_steps_writes_are_rolled_back_before_a_policy_decides() -> None:
    workflow = run_to_end(play(FailsAtomic, Busy(), None))
    assert_state(workflow, "finished")
    assert Order.objects.filter(number="written").count() == 1

    run_to_end(play(FailsAtomic, Busy()))
    assert Scripted.runs == 2 + 3
    assert Order.objects.filter(number="written").count() == 1


# -- process-ending exceptions are crashes


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_policies_do_not_apply_to_exceptions_that_end_the_process(error: BaseException) -> None:
    workflow = play(FailsShort, error)

    with pytest.raises(type(error)):
        run_next_step(workflow)

    first, second = rows(workflow)
    assert (first.state, first.outcome) == ("failed", "recovered")
    assert (second.crashes, second.reattempts) == (1, 0)
