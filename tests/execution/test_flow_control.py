"""Flow control: what a step can call, and the effect of each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import override_settings

from geneva_drive import InvalidStateError, Workflow, clock, removed_step, step
from geneva_drive.testing import assert_state, assert_step, run_next_step, run_to_end
from tests.execution.support import Free, active, history, run, trace
from tests.testapp.models import Effect

pytestmark = pytest.mark.django_db(databases=["default", "other"])

Act = Callable[[Any], object]

say: Act = lambda workflow: None  # noqa: E731 - replaced by each test


class SpeaksAsTold(Free):
    """Its second step calls what the test sets."""

    @step
    def before(self) -> None:
        pass

    @step
    def speaks(self) -> None:
        say(self)
        trace.append("went on")

    buried = removed_step()

    @step
    def after(self) -> None:
        trace.append("after")


@pytest.fixture
def speaking(monkeypatch: pytest.MonkeyPatch) -> Callable[[Act], Workflow]:
    """Return a workflow at the step that calls the given function."""

    def prepared(act: Act) -> Workflow:
        monkeypatch.setitem(globals(), "say", act)
        return run_next_step(SpeaksAsTold.start())

    return prepared


FOLLOWING = ("after", "scheduled", None)
AGAIN = ("speaks", "scheduled", None)


@pytest.mark.parametrize(
    ("act", "state", "outcome", "workflow_state", "pointed_at", "follows"),
    [
        (lambda w: w.finish(), "completed", "success", "finished", None, None),
        (lambda w: w.skip(), "skipped", "skipped", "ready", "after", FOLLOWING),
        (lambda w: w.cancel(), "canceled", "canceled", "canceled", None, None),
        (lambda w: w.pause(), "canceled", "workflow_paused", "paused", "speaks", None),
        (lambda w: w.reattempt(), "completed", "reattempted", "ready", "speaks", AGAIN),
        (
            lambda w: w.reattempt(wait=timedelta(hours=1)),
            "completed",
            "reattempted",
            "ready",
            "speaks",
            AGAIN,
        ),
    ],
    ids=["finish", "skip", "cancel", "pause", "reattempt", "reattempt with a wait"],
)
def test_each_flow_control_ends_the_step_at_once_and_moves_the_workflow(
    speaking: Callable[[Act], Workflow],
    act: Act,
    state: str,
    outcome: str,
    workflow_state: str,
    pointed_at: str | None,
    follows: tuple[str, str, str | None] | None,
) -> None:
    workflow = speaking(act)

    run(workflow)

    assert "went on" not in trace
    rows = history(workflow)
    assert rows[1] == ("speaks", state, outcome)
    assert rows[2:] == ([follows] if follows else [])
    assert_state(workflow, workflow_state)
    assert workflow.next_step_name == pointed_at
    assert workflow.current_step_name is None
    ended = workflow.executions.order_by("pk")[1]
    assert ended.finished_at is not None
    assert ended.error_class is None


def test_the_reason_is_stored_on_the_row(speaking: Callable[[Act], Workflow]) -> None:
    workflow = speaking(lambda w: w.pause(reason="the shop is closed"))

    run(workflow)

    assert workflow.executions.order_by("pk")[1].metadata == {"reason": "the shop is closed"}


def test_a_reattempt_is_due_after_its_wait_and_without_one_now(speaking: Callable[[Act], Workflow]) -> None:
    waits = [timedelta(hours=1), None]
    workflow = speaking(lambda w: w.reattempt(wait=waits.pop(0)))

    before = clock.now("default")
    run(workflow)
    due = clock.utc(active(workflow).scheduled_for)
    assert before + timedelta(hours=1) <= due <= clock.now("default") + timedelta(hours=1)

    run_next_step(workflow)
    assert clock.utc(active(workflow).scheduled_for) <= clock.now("default") + timedelta(hours=1)


def test_a_reattempt_does_not_repeat_the_steps_own_wait() -> None:
    class WaitingOnce(Free):
        @step(wait=timedelta(days=3))
        def waits(self) -> None:
            self.reattempt()

    workflow = run_next_step(WaitingOnce.start())

    first, second = workflow.executions.order_by("pk")
    assert second.scheduled_for - first.finished_at < timedelta(hours=1)


@pytest.mark.parametrize("wait", [timedelta(seconds=-1), 5, "soon", timedelta(days=40_000)])
def test_an_invalid_wait_fails_the_step(speaking: Callable[[Act], Workflow], wait: Any) -> None:
    workflow = speaking(lambda w: w.reattempt(wait=wait))

    with pytest.raises(ValueError, match="wait="):
        run(workflow)

    assert history(workflow)[1:] == [("speaks", "failed", "failed")]
    assert_state(workflow, "paused")


def test_resume_after_a_pause_by_the_step_runs_it_again(speaking: Callable[[Act], Workflow]) -> None:
    answers: list[Act] = [lambda w: w.pause(), lambda w: None]
    workflow = speaking(lambda w: answers.pop(0)(w))  # noqa: PLW0108 - popped when it runs
    run(workflow)

    workflow.resume()
    run(workflow)

    assert history(workflow)[1:] == [
        ("speaks", "canceled", "workflow_paused"),
        ("speaks", "completed", "success"),
        ("after", "scheduled", None),
    ]


def test_a_skip_continues_past_gravestones(speaking: Callable[[Act], Workflow]) -> None:
    workflow = speaking(lambda w: w.skip())

    run_to_end(workflow)

    assert trace == ["after"]
    assert_state(workflow, "finished")


def test_a_skip_of_the_last_step_finishes() -> None:
    class SkipsLast(Free):
        @step
        def only(self) -> None:
            self.skip()

    workflow = run_next_step(SkipsLast.start())

    assert_state(workflow, "finished")
    assert_step(workflow, "only", "skipped", "skipped")


@pytest.mark.parametrize("word", ["cancel", "pause", "skip", "finish", "reattempt"])
def test_except_exception_cannot_swallow_flow_control(speaking: Callable[[Act], Workflow], word: str) -> None:
    def act(workflow: Any) -> None:
        try:
            getattr(workflow, word)()
        except Exception:  # noqa: BLE001 - what a careless step does
            trace.append("swallowed")
        trace.append("went on")

    workflow = speaking(act)

    run(workflow)

    assert trace == []


def test_suspend_is_for_resumable_steps(speaking: Callable[[Act], Workflow]) -> None:
    workflow = speaking(lambda w: w.suspend())

    with pytest.raises(InvalidStateError, match=r"suspend\(\) is for resumable steps"):
        run(workflow)

    assert_step(workflow, "speaks", "failed", "failed")


def test_writes_before_flow_control_are_kept(speaking: Callable[[Act], Workflow]) -> None:
    def act(workflow: Any) -> None:
        Effect.objects.create(workflow="1", step="speaks")
        workflow.pause()

    run(speaking(act))

    assert Effect.objects.count() == 1


@pytest.mark.parametrize("word", ["cancel", "pause", "skip", "finish", "reattempt"])
@pytest.mark.parametrize("alias", ["default", "other"])
@pytest.mark.parametrize("swallow", [False, True])
def test_flow_control_inside_the_steps_atomic_block_is_refused_on_any_alias(
    speaking: Callable[[Act], Workflow], word: str, alias: str, swallow: bool
) -> None:
    def act(workflow: Any) -> None:
        with transaction.atomic(using=alias):
            Effect.objects.using(alias).create(workflow="1", step="speaks")
            try:
                getattr(workflow, word)()
            except InvalidStateError as error:
                trace.append(str(error))
                if not swallow:
                    raise

    workflow = speaking(act)

    if swallow:
        run(workflow)
        assert Effect.objects.using(alias).count() == 1
    else:
        with pytest.raises(InvalidStateError):
            run(workflow)
        assert Effect.objects.using(alias).count() == 0
        assert history(workflow)[1:] == [("speaks", "failed", "failed")]
    assert f"transaction.atomic() block on '{alias}'" in trace[0]


def test_flow_control_after_the_steps_atomic_block_is_accepted(speaking: Callable[[Act], Workflow]) -> None:
    def act(workflow: Any) -> None:
        with transaction.atomic():
            Effect.objects.create(workflow="1", step="speaks")
        workflow.cancel()

    workflow = speaking(act)
    run(workflow)

    assert_state(workflow, "canceled")
    assert Effect.objects.count() == 1


def test_flow_control_is_accepted_in_a_block_around_the_whole_run(
    speaking: Callable[[Act], Workflow],
) -> None:
    workflow = speaking(lambda w: w.cancel())

    with transaction.atomic():
        run(workflow)

    assert_state(workflow, "canceled")


@pytest.mark.parametrize(
    "use",
    [
        lambda w: w.finish(),
        lambda w: w.reattempt(),
        lambda w: w.suspend(),
        lambda w: w.current_execution,
        lambda w: w.logger,
    ],
    ids=["finish", "reattempt", "suspend", "current_execution", "logger"],
)
def test_flow_control_outside_a_step_is_refused(use: Act) -> None:
    with pytest.raises(InvalidStateError, match="only inside a step"):
        use(SpeaksAsTold.start())


def test_an_instance_is_outside_a_step_after_the_step_ended(speaking: Callable[[Act], Workflow]) -> None:
    kept: list[Any] = []
    workflow = speaking(kept.append)
    run(workflow)

    with pytest.raises(InvalidStateError, match="only inside a step"):
        kept[0].finish()


def test_calls_on_another_workflow_are_operator_actions(speaking: Callable[[Act], Workflow]) -> None:
    other = SpeaksAsTold.start()
    workflow = speaking(lambda w: Workflow.objects.get(pk=other.pk).cancel(by="the other one"))

    run(workflow)

    assert "went on" in trace
    assert_state(other, "canceled")
    assert other.operator_actions.get().actor == "the other one"
    assert_step(workflow, "speaks", "completed", "success")


def test_a_step_knows_its_execution_and_its_logger(
    speaking: Callable[[Act], Workflow], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "geneva_drive.step")

    def act(workflow: Any) -> None:
        trace.append(workflow.current_execution.pk)
        workflow.logger.info("counted %s", 3)

    workflow = speaking(act)
    execution = active(workflow)
    run(workflow)

    assert trace[0] == execution.pk
    record = next(record for record in caplog.records if record.getMessage() == "counted 3")
    assert (record.__dict__["workflow_id"], record.__dict__["step"]) == (workflow.pk, "speaks")


@override_settings(GENEVA_DRIVE={"MAX_CRASHES": 2})
@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_an_exception_that_ends_the_process_is_recorded_as_a_crash_and_raised(
    speaking: Callable[[Act], Workflow], error: BaseException
) -> None:
    def act(workflow: Any) -> None:
        raise error

    workflow = speaking(act)

    with pytest.raises(type(error)):
        run(workflow)
    assert history(workflow)[1:] == [("speaks", "failed", "recovered"), AGAIN]
    assert active(workflow).crashes == 1

    with pytest.raises(type(error)):
        run(workflow)
    assert history(workflow)[2:] == [("speaks", "failed", "recovered")]
    assert_state(workflow, "paused")
    assert workflow.executions.order_by("pk")[2].metadata == {
        "crashes": 2,
        "reason": "crashed 2 times in a row",
    }


def test_nothing_stays_open_after_flow_control(speaking: Callable[[Act], Workflow]) -> None:
    depth = len(connections["default"].atomic_blocks)

    run(speaking(lambda w: w.pause()))

    assert len(connections["default"].atomic_blocks) == depth
