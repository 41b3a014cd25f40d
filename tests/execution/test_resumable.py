"""Loops that survive: what stops them, where they go on, and what they repeat."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from geneva_drive import (
    ExceptionPolicy,
    InvalidStateError,
    Iteration,
    PayloadError,
    PayloadTooLargeError,
    StepExecution,
    Workflow,
    cancel_if,
    resumable_step,
    step,
)
from geneva_drive.dispatchers.running import DispatchedRunner
from geneva_drive.execution.executor import execute
from geneva_drive.execution.runner import Runner
from geneva_drive.housekeeping import recover
from geneva_drive.testing import (
    ProcessKilled,
    assert_cursor,
    assert_state,
    assert_step,
    run_iterations,
    run_next_step,
    run_to_end,
    travel,
)
from tests.execution.support import Free, active, history, run, trace
from tests.testapp.models import Item, Order

pytestmark = pytest.mark.django_db

HOOK: list[Callable[[Any, Iteration], None]] = []
"""What the next body is to do beside its loop."""


@pytest.fixture(autouse=True)
def _no_hook() -> None:
    HOOK.clear()


def at(number: int, act: Callable[[Any, Iteration], None]) -> None:
    """Do something at one item of the loops below, once."""

    def hook(workflow: Any, iteration: Iteration) -> None:
        if trace and trace[-1] == number:
            HOOK.clear()
            act(workflow, iteration)

    HOOK.append(hook)


class CountingLoop(Free):
    """Ten items, noted one by one."""

    def loop(self, iteration: Iteration) -> None:
        for item in iteration.iterate(range(10)):
            trace.append(item)
            for hook in list(HOOK):
                hook(self, iteration)

    @resumable_step
    def count(self, iteration: Iteration) -> None:
        self.loop(iteration)

    @step
    def after(self) -> None:
        trace.append("after")


class SparingLoop(CountingLoop):
    """The same, writing its cursor every four items."""

    @resumable_step(checkpoint_every=4)
    def count(self, iteration: Iteration) -> None:
        self.loop(iteration)


class HastyLoop(CountingLoop):
    """The same, three items at a time."""

    @resumable_step(max_iterations=3)
    def count(self, iteration: Iteration) -> None:
        self.loop(iteration)


def rows(workflow: Workflow) -> list[StepExecution]:
    return list(StepExecution.objects.filter(workflow_id=workflow.pk).order_by("pk"))


def stop(*_: Any) -> None:
    raise RuntimeError("the mail server is away")


class _Stopping(Runner):
    """A worker that is told to stop while the body runs."""

    def __init__(self, after: int) -> None:
        super().__init__(straight_on=False)
        self._after = after

    def should_stop(self) -> bool:
        return len(trace) >= self._after


# -- without interruption


def test_a_loop_that_nothing_interrupts_does_every_item_in_one_execution() -> None:
    workflow = run_to_end(CountingLoop.start())

    assert trace == [*range(10), "after"]
    assert history(workflow) == [("count", "completed", "success"), ("after", "completed", "success")]
    count, after = rows(workflow)
    assert (count.cursor, count.iterations, count.iterations_total, count.continues_from_id) == (
        10,
        10,
        10,
        None,
    )
    assert (after.cursor, after.iterations, after.iterations_total) == (None, 0, None)


def test_a_loop_over_nothing_completes() -> None:
    class Empty(Free):
        @resumable_step
        def nothing(self, iteration: Iteration) -> None:
            assert not iteration.resumed
            assert not list(iteration.iterate([]))
            assert not iteration.advanced

    workflow = run_to_end(Empty.start())

    assert (rows(workflow)[0].cursor, rows(workflow)[0].iterations_total) == (None, 0)


def test_each_checkpoint_is_one_update_by_key_that_reads_no_row() -> None:
    workflow = CountingLoop.start()
    with CaptureQueriesContext(connection) as queries:
        run_next_step(workflow)

    checkpoints = [each["sql"] for each in queries if "iterations_total = " in each["sql"]]
    assert len(checkpoints) == 10
    assert all(sql.startswith("UPDATE") for sql in checkpoints)
    first, last = (
        next(i for i, q in enumerate(queries) if q["sql"] == sql) for sql in (checkpoints[0], checkpoints[-1])
    )
    assert last - first == 9, "nothing but checkpoints happens between the first and the last"


def test_a_step_that_writes_every_four_items_writes_a_quarter() -> None:
    with CaptureQueriesContext(connection) as queries:
        workflow = run_next_step(SparingLoop.start())

    # After 4 and 8, and what is left when the body has ended.
    assert len([each for each in queries if "iterations_total = " in each["sql"]]) == 3
    assert rows(workflow)[0].cursor == 10


def test_a_step_can_write_every_so_often() -> None:
    class Timed(CountingLoop):
        @resumable_step(checkpoint_every=timedelta(minutes=1))
        def count(self, iteration: Iteration) -> None:
            for item in iteration.iterate(range(10)):
                with travel(timedelta(seconds=40) * item):
                    trace.append(item)
                    continue

    with CaptureQueriesContext(connection) as queries:
        run_next_step(Timed.start())

    assert len([each for each in queries if "iterations_total = " in each["sql"]]) == 1


# -- limits


def test_max_iterations_gives_way_and_a_successor_goes_on() -> None:
    workflow = run_to_end(HastyLoop.start())

    assert trace == [*range(10), "after"]
    assert history(workflow) == 3 * [("count", "completed", "continued")] + [
        ("count", "completed", "success"),
        ("after", "completed", "success"),
    ]
    *chain, _ = rows(workflow)
    assert [row.cursor for row in chain] == [3, 6, 9, 10]
    assert [row.iterations for row in chain] == [3, 6, 9, 10]
    assert [row.continues_from_id for row in chain] == [None, *(row.pk for row in chain[:-1])]
    assert chain[0].metadata == {"reason": "max_iterations"}


def test_an_interruption_lets_other_work_come_first() -> None:
    workflow = HastyLoop.start()

    performed = run(workflow, straight_on=True)

    assert performed == 1, "the successor is left to the dispatcher although this runner goes straight on"
    successor = active(workflow)
    assert (successor.state, successor.cursor, successor.continues_from_id) == (
        "scheduled",
        3,
        rows(workflow)[0].pk,
    )
    assert_state(workflow, "ready")


def test_the_last_item_is_no_reason_to_give_way() -> None:
    class Exact(CountingLoop):
        @resumable_step(max_iterations=5)
        def count(self, iteration: Iteration) -> None:
            self.loop(iteration)

    workflow = run_to_end(Exact.start())

    # Each execution does at least one item: none is made to find that there is nothing left.
    assert [outcome for _, _, outcome in history(workflow)] == ["continued", "success", "success"]


def test_max_runtime_is_looked_at_after_each_item_and_one_is_always_done() -> None:
    class Slow(CountingLoop):
        @resumable_step(max_runtime=timedelta(seconds=10))
        def count(self, iteration: Iteration) -> None:
            with pytest.MonkeyPatch.context() as patch:
                for item in iteration.iterate(range(6)):
                    trace.append(item)
                    now = 1000.0 * (item + 1)
                    patch.setattr("geneva_drive.clock.stopwatch", lambda now=now: now + 1e9)

    workflow = run_to_end(Slow.start())

    assert trace == [*range(6), "after"]
    assert [outcome for _, _, outcome in history(workflow)] == 5 * ["continued"] + 2 * ["success"]
    assert rows(workflow)[0].metadata == {"reason": "max_runtime"}


def test_a_worker_that_stops_stops_the_loop_at_its_next_item() -> None:
    workflow = SparingLoop.start()

    execute(active(workflow).pk, runner=_Stopping(after=6))

    assert trace == [0, 1, 2, 3, 4, 5]
    assert_cursor(workflow, 6, iterations=6)
    assert rows(workflow)[0].metadata == {"reason": "shutdown"}
    run_to_end(workflow)
    assert trace == [*range(10), "after"]


# -- pause and cancel from outside


@pytest.mark.parametrize("cls", [CountingLoop, SparingLoop])
def test_a_pause_stops_the_loop_at_its_next_checkpoint_and_resume_repeats_nothing(
    cls: type[CountingLoop],
) -> None:
    workflow = cls.start()
    at(4, lambda *_: cls.objects.get(pk=workflow.pk).pause(by="Ada"))

    run_next_step(workflow)

    stopped_after = 5 if cls is CountingLoop else 8
    assert list(range(stopped_after)) == trace
    assert_state(workflow, "paused")
    successor = active(workflow)
    assert (successor.state, successor.held, successor.cursor) == ("scheduled", True, stopped_after)
    assert rows(workflow)[0].outcome == "continued"

    workflow.resume(by="Ada")
    run_to_end(workflow)

    assert trace == [*range(10), "after"]
    assert_state(workflow, "finished")


def test_a_pause_that_is_withdrawn_in_time_stops_nothing() -> None:
    workflow = CountingLoop.start()

    def hesitate(*_: Any) -> None:
        CountingLoop.objects.get(pk=workflow.pk).pause()
        CountingLoop.objects.get(pk=workflow.pk).resume()

    at(4, hesitate)

    run_next_step(workflow)

    assert list(range(10)) == trace
    assert history(workflow)[0] == ("count", "completed", "success")


def test_a_pause_during_the_last_item_lets_the_step_complete() -> None:
    workflow = CountingLoop.start()
    at(9, lambda *_: CountingLoop.objects.get(pk=workflow.pk).pause())

    run_next_step(workflow)

    assert history(workflow) == [("count", "completed", "success"), ("after", "scheduled", None)]
    assert_state(workflow, "paused")


def test_a_cancel_stops_the_loop_at_its_next_checkpoint() -> None:
    workflow = CountingLoop.start()
    at(4, lambda *_: CountingLoop.objects.get(pk=workflow.pk).cancel())

    run_next_step(workflow)

    assert trace == [0, 1, 2, 3, 4]
    assert_state(workflow, "canceled")
    assert history(workflow) == [("count", "canceled", "canceled")]
    assert rows(workflow)[0].iterations == 5


def test_a_loop_that_was_taken_away_stops_at_its_next_checkpoint_and_writes_nothing() -> None:
    workflow = CountingLoop.start()

    def take_away(*_: Any) -> None:
        StepExecution.objects.filter(workflow_id=workflow.pk).update(
            attempt_token=uuid.uuid4(), cursor="theirs"
        )

    at(4, take_away)

    run(workflow)

    assert trace == [0, 1, 2, 3, 4]
    row = active(workflow)
    assert (row.state, row.cursor, row.iterations) == ("in_progress", "theirs", 4)
    assert_state(workflow, "performing")


# -- failures, crashes, and by hand


@pytest.mark.parametrize("cls", [CountingLoop, SparingLoop])
def test_a_failure_keeps_what_was_done_and_resume_goes_on(cls: type[CountingLoop]) -> None:
    workflow = cls.start()
    at(6, stop)

    run_next_step(workflow, raise_errors=False)

    assert_state(workflow, "paused")
    assert_step(workflow, "count", "failed", "failed")
    assert_cursor(workflow, 6, iterations=6)

    workflow.resume()
    assert_cursor(workflow, 6, iterations=6)
    assert active(workflow).continues_from_id == rows(workflow)[0].pk
    run_to_end(workflow)

    assert trace == [0, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9, "after"]


def test_a_failure_at_the_first_item_after_a_resume_keeps_the_saved_cursor() -> None:
    workflow = CountingLoop.start()
    at(6, stop)
    run_next_step(workflow, raise_errors=False)

    for _ in range(2):
        at(6, stop)
        workflow.resume()
        run_next_step(workflow, raise_errors=False)
        assert_cursor(workflow, 6, iterations=6)

    workflow.resume()
    run_to_end(workflow)
    assert trace == [*range(6), 6, 6, 6, *range(6, 10), "after"]


def test_a_failure_before_the_first_item_begins_anew_and_is_no_continuation() -> None:
    workflow = CountingLoop.start()
    at(0, stop)
    run_next_step(workflow, raise_errors=False)

    workflow.resume()

    row = active(workflow)
    assert (row.cursor, row.continues_from_id, row.iterations) == (None, None, 0)


def test_reattempt_goes_on_from_the_cursor() -> None:
    workflow = CountingLoop.start()
    at(6, lambda body, _: body.reattempt(wait=timedelta(hours=1)))

    run_to_end(workflow)

    assert trace == [*range(6), 6, *range(6, 10), "after"]
    assert [outcome for _, _, outcome in history(workflow)] == ["reattempted", "success", "success"]


def test_reattempt_with_rewind_starts_over() -> None:
    workflow = CountingLoop.start()
    at(6, lambda body, _: body.reattempt(rewind=True))

    run_to_end(workflow)

    assert trace == [*range(7), *range(10), "after"]
    again = rows(workflow)[1]
    assert (again.continues_from_id, again.iterations) == (None, 10)


def test_a_pause_by_the_step_itself_goes_on_from_the_cursor() -> None:
    workflow = CountingLoop.start()
    at(6, lambda body, _: body.pause())
    run_next_step(workflow)
    assert_step(workflow, "count", "canceled", "workflow_paused")

    workflow.resume()
    run_to_end(workflow)

    assert trace == [*range(6), 6, *range(6, 10), "after"]


def test_resume_at_starts_from_the_beginning() -> None:
    workflow = run_iterations(CountingLoop.start(), 6)
    workflow.pause()

    workflow.resume_at("count")

    assert_cursor(workflow, None, iterations=0)
    assert active(workflow).continues_from_id is None
    run_to_end(workflow)
    assert trace == [*range(6), *range(10), "after"]


def test_skip_passes_over_what_is_left() -> None:
    workflow = run_iterations(CountingLoop.start(), 6)

    workflow.skip()
    run_to_end(workflow)

    assert trace == [*range(6), "after"]


@pytest.mark.parametrize(("cls", "repeated"), [(CountingLoop, 6), (SparingLoop, 4)])
def test_a_killed_process_repeats_no_more_than_was_not_written(
    cls: type[CountingLoop], repeated: int
) -> None:
    workflow = cls.start()

    def kill(*_: Any) -> None:
        raise ProcessKilled

    at(6, kill)
    with pytest.raises(ProcessKilled):
        run_next_step(workflow)
    assert_cursor(workflow, repeated, iterations=repeated)

    with travel(timedelta(hours=2)):
        recover("default")
        assert_cursor(workflow, repeated, iterations=repeated)
        run_to_end(workflow)

    assert trace == [*range(7), *range(repeated, 10), "after"]
    assert [outcome for _, _, outcome in history(workflow)] == ["recovered", "success", "success"]


def kill_at(workflow: Workflow, number: int) -> None:
    def kill(*_: Any) -> None:
        raise ProcessKilled

    at(number, kill)
    with pytest.raises(ProcessKilled):
        run_next_step(workflow)
    # Each later than the one before, which was begun at the time that the recovery before had travelled to.
    with travel(timedelta(hours=2 * len(rows(workflow)))):
        recover("default")


def test_a_process_that_dies_after_some_progress_each_time_is_never_given_up() -> None:
    workflow = CountingLoop.start()

    for number in range(1, 9):
        kill_at(workflow, number)
        assert active(workflow).crashes == 1

    run_to_end(workflow)
    assert_state(workflow, "finished")


def test_an_item_that_kills_its_process_each_time_is_given_up_at_the_limit() -> None:
    workflow = CountingLoop.start()

    kill_at(workflow, 4)
    kill_at(workflow, 4)
    assert active(workflow).crashes == 2
    kill_at(workflow, 4)

    assert_state(workflow, "paused")
    assert_cursor(workflow, 4, iterations=4)


def test_a_body_that_ends_its_process_keeps_what_was_done() -> None:
    workflow = SparingLoop.start()

    def leave(*_: Any) -> None:
        raise SystemExit(1)

    at(6, leave)
    with pytest.raises(SystemExit):
        run_next_step(workflow)

    assert_cursor(workflow, 6, iterations=6)
    assert active(workflow).crashes == 1


# -- suspend and skip_to


class PollingLoop(Free):
    @resumable_step
    def poll(self, iteration: Iteration) -> None:
        if not iteration.resumed:
            trace.append("ordered")
            self.suspend(wait=timedelta(minutes=10))
        trace.append("fetched")


def test_suspend_goes_on_after_the_wait_also_without_a_cursor() -> None:
    workflow = run_next_step(PollingLoop.start())

    successor = active(workflow)
    assert (successor.scheduled_for - rows(workflow)[0].finished_at) == timedelta(minutes=10)
    assert rows(workflow)[0].outcome == "continued"
    run_to_end(workflow)
    assert trace == ["ordered", "fetched"]


def test_what_was_suspended_is_resumed_after_a_crash_too() -> None:
    class Dying(Free):
        @resumable_step
        def poll(self, iteration: Iteration) -> None:
            trace.append(iteration.resumed)
            if not iteration.resumed:
                self.suspend()
            if len(trace) < 3:
                raise ProcessKilled

    workflow = run_next_step(Dying.start())
    with pytest.raises(ProcessKilled):
        run_next_step(workflow)
    with travel(timedelta(hours=2)):
        recover("default")
        run_to_end(workflow)

    assert trace == [False, True, True]


def test_skip_to_goes_on_from_there_after_the_wait() -> None:
    workflow = CountingLoop.start()
    at(3, lambda _, iteration: iteration.skip_to(8, wait=timedelta(days=1)))

    run_next_step(workflow)

    assert_cursor(workflow, 8, iterations=3)
    assert active(workflow).scheduled_for > rows(workflow)[0].finished_at + timedelta(hours=23)
    run_to_end(workflow)
    assert trace == [0, 1, 2, 3, 8, 9, "after"]


def test_a_negative_wait_is_refused_before_anything_is_written() -> None:
    workflow = CountingLoop.start()
    at(3, lambda _, iteration: iteration.skip_to(8, wait=timedelta(days=-1)))

    with pytest.raises(ValueError, match="negative"):
        run_next_step(workflow)

    assert_cursor(workflow, 3)


def test_suspend_belongs_to_resumable_steps() -> None:
    class Plain(Free):
        @step
        def wait(self) -> None:
            self.suspend()

    with pytest.raises(InvalidStateError, match="resumable"):
        run_next_step(Plain.start())


# -- conditions


class AskingLoop(Free):
    @cancel_if
    def gone(self) -> bool:
        trace.append("cancel_if")
        return bool(self.metadata == "gone")

    def enough(self) -> bool:
        trace.append("skip_if")
        return bool(self.metadata == "enough")

    @resumable_step(max_iterations=1, skip_if="enough")
    def count(self, iteration: Iteration) -> None:
        for item in iteration.iterate(range(3)):
            trace.append(item)


def test_conditions_are_looked_at_again_for_each_successor() -> None:
    run_to_end(AskingLoop.start())

    assert trace == ["cancel_if", "skip_if", 0, "cancel_if", "skip_if", 1, "cancel_if", "skip_if", 2]


@pytest.mark.parametrize(("told", "state"), [("gone", "canceled"), ("enough", "finished")])
def test_a_condition_that_holds_meanwhile_ends_the_loop(told: str, state: str) -> None:
    workflow = run_next_step(AskingLoop.start())
    Workflow.objects.filter(pk=workflow.pk).update(metadata=told)

    run_to_end(workflow)

    assert [each for each in trace if isinstance(each, int)] == [0]
    assert_state(workflow, state)


# -- moving the cursor by hand


VALUES: list[Any] = [
    0,
    -(2**63),
    1.5,
    "é\u2028",
    "",
    True,
    {},
    [],
    {"page": [1, None], "$odd": {}},
    ("a", 1, ("b",)),
    {1, 2},
    b"\0\xff",
    Decimal("1.50"),
    uuid.UUID(int=7),
    datetime.date(2024, 2, 29),
    datetime.time(2, 30, fold=1),
    datetime.datetime(2024, 10, 27, 0, 30, 0, 1, tzinfo=datetime.UTC),
    timedelta(days=-1, microseconds=1),
]


class SettingLoop(Free):
    @resumable_step(max_iterations=1)
    def keep(self, iteration: Iteration) -> None:
        trace.append((iteration.cursor, iteration.resumed))
        if not iteration.resumed:
            iteration.set(self.metadata)


@pytest.mark.parametrize(
    "value",
    VALUES,
    ids=lambda value: f"{type(value).__name__}_{value}" if not isinstance(value, set) else "set",
)
def test_a_cursor_of_any_payload_type_comes_back_equal(value: Any) -> None:
    workflow = run_to_end(SettingLoop.start(metadata=value))

    assert trace == [(None, False), (value, True)]
    assert type(trace[1][0]) is type(value)
    assert_cursor(workflow, value)


def test_a_model_instance_is_kept_as_a_reference() -> None:
    order = Order.objects.create(number="7")

    run_to_end(SettingLoop.start(metadata=order))

    assert trace[1][0] == order
    assert trace[1][0].number == "7"


def test_a_cursor_is_what_it_was_when_it_was_set() -> None:
    class Changing(Free):
        @resumable_step(checkpoint_every=100)
        def keep(self, iteration: Iteration) -> None:
            page = {"number": 1}
            iteration.set(page)
            page["number"] = 2

    workflow = run_next_step(Changing.start())

    assert_cursor(workflow, {"number": 1})


@pytest.mark.parametrize("value", [float("nan"), object(), {1: 2}, 2**63])
def test_a_cursor_that_cannot_be_stored_is_refused_where_it_is_set(value: Any) -> None:
    class Refused(Free):
        @resumable_step(checkpoint_every=100)
        def keep(self, iteration: Iteration) -> None:
            iteration.set("good")
            with pytest.raises(PayloadError, match="keep: cursor"):
                iteration.set(value)
            trace.append(iteration.cursor)

    assert_cursor(run_next_step(Refused.start()), "good", iterations=1)
    assert trace == ["good"]


@override_settings(GENEVA_DRIVE={"MAX_CURSOR_BYTES": 20})
def test_a_cursor_is_bounded_in_size() -> None:
    class Large(Free):
        @resumable_step
        def keep(self, iteration: Iteration) -> None:
            iteration.set("x" * 18)
            iteration.set("x" * 19)

    workflow = Large.start()
    with pytest.raises(PayloadTooLargeError, match="at most 20"):
        run_next_step(workflow)

    assert_cursor(workflow, "x" * 18)


def test_advance_counts_from_zero() -> None:
    class Advancing(Free):
        @resumable_step(max_iterations=2)
        def count(self, iteration: Iteration) -> None:
            for number in range(iteration.cursor or 0, 5):
                trace.append(number)
                iteration.advance()
                assert iteration.advanced

    workflow = run_to_end(Advancing.start())

    assert trace == [0, 1, 2, 3, 4]
    assert_cursor(workflow, 5, iterations=5)


@pytest.mark.parametrize("value", ["a", True, 1.0, -1, datetime.date(2024, 1, 1)])
def test_advance_is_for_integers_only(value: Any) -> None:
    class Advancing(Free):
        @resumable_step
        def count(self, iteration: Iteration) -> None:
            iteration.set(value)
            iteration.advance()

    with pytest.raises(TypeError, match=r"advance\(\) counts items"):
        run_next_step(Advancing.start())


def test_checkpoint_writes_at_once_and_counts_nothing() -> None:
    class Explicit(Free):
        @resumable_step(checkpoint_every=100)
        def count(self, iteration: Iteration) -> None:
            iteration.set("a")
            trace.append(rows(self)[0].cursor)
            iteration.checkpoint()
            trace.append(rows(self)[0].cursor)

    workflow = run_next_step(Explicit.start())

    assert trace == [None, "a"]
    assert_cursor(workflow, "a", iterations=1)


def test_nothing_stops_before_an_item_is_done() -> None:
    class Careful(CountingLoop):
        @resumable_step(max_iterations=1)
        def count(self, iteration: Iteration) -> None:
            iteration.checkpoint()
            self.loop(iteration)

    workflow = Careful.start()

    execute(active(workflow).pk, runner=_Stopping(after=0))

    assert trace == [0]


@pytest.mark.parametrize("call", ["set(1)", "advance()", "checkpoint()", "skip_to(1)"])
def test_the_cursor_does_not_move_inside_a_block_that_may_roll_back(call: str) -> None:
    class Inside(Free):
        @resumable_step
        def count(self, iteration: Iteration) -> None:
            with transaction.atomic():
                eval(f"iteration.{call}")

    workflow = Inside.start()
    with pytest.raises(InvalidStateError, match="atomic"):
        run_next_step(workflow)

    assert_cursor(workflow, None)


def test_a_block_around_each_item_is_welcome() -> None:
    class Blocks(Free):
        @resumable_step
        def count(self, iteration: Iteration) -> None:
            for item in iteration.iterate("abc"):
                with transaction.atomic():
                    Order.objects.create(number=item)

    run_to_end(Blocks.start())

    assert Order.objects.count() == 3


@pytest.mark.parametrize("call", ["iteration.iterate([1])", "iteration.iterate_queryset(Order.objects)"])
def test_a_second_loop_over_one_cursor_is_refused(call: str) -> None:
    class Twice(Free):
        @resumable_step
        def count(self, iteration: Iteration) -> None:
            list(iteration.iterate([1, 2]))
            eval(call, {"iteration": iteration, "Order": Order})

    with pytest.raises(InvalidStateError, match="a step of its own"):
        run_next_step(Twice.start())


@pytest.mark.parametrize("call", ["set(5)", "advance()"])
def test_the_cursor_of_a_loop_is_not_moved_by_hand(call: str) -> None:
    workflow = CountingLoop.start()
    at(3, lambda _, iteration: eval(f"iteration.{call}", {"iteration": iteration}))

    with pytest.raises(InvalidStateError, match=r"inside iterate\(\)"):
        run_next_step(workflow)


@pytest.mark.parametrize(
    "given",
    [{1: 2}, {1, 2}, (n for n in [1]), Order.objects.all, Order.objects],
    ids=["dict", "set", "generator", "method", "manager"],
)
def test_what_has_no_order_or_no_end_is_not_iterated(given: Any) -> None:
    class Wrong(Free):
        @resumable_step
        def count(self, iteration: Iteration) -> None:
            list(iteration.iterate(given))

    with pytest.raises(TypeError, match="takes a sequence"):
        run_next_step(Wrong.start())


def test_a_break_leaves_the_item_in_hand_undone() -> None:
    class Breaking(Free):
        @resumable_step
        def count(self, iteration: Iteration) -> None:
            for item in iteration.iterate(range(5)):
                if item == 3:
                    break

    workflow = run_to_end(Breaking.start())

    assert_cursor(workflow, 3, iterations=3)
    assert_state(workflow, "finished")


# -- a cursor that cannot be read


def test_a_cursor_of_newer_code_is_deferred_then_fails_and_pauses() -> None:
    workflow = run_iterations(CountingLoop.start(), 3)
    column = "CAST(%s AS jsonb)" if connection.vendor == "postgresql" else "%s"
    quoted = connection.ops.quote_name("cursor")
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE geneva_drive_stepexecution SET {quoted} = {column} WHERE id = %s",
            [
                '{"$moment": "of tomorrow"}',
                StepExecution._meta.pk.get_db_prep_value(active(workflow).pk, connection),
            ],
        )

    assert run(workflow) == 0
    row = active(workflow)
    assert row.state == "scheduled"
    assert row.deferred_since is not None
    assert row.scheduled_for > row.created_at
    with travel(timedelta(hours=1)):
        assert run(workflow) == 0

    assert trace == [0, 1, 2]
    assert_state(workflow, "paused")
    failed = assert_step(workflow, "count", "failed", "failed")
    assert failed.error_class == "geneva_drive.exceptions.PayloadError"
    assert "count" in str(failed.error_message)
    # Nothing is lost: newer code finds it as it was.
    workflow.resume()
    assert active(workflow).cursor == failed.cursor


# -- querysets in a step


@pytest.fixture
def items() -> list[Item]:
    return Item.objects.bulk_create([Item(code=f"{n:03}", rank=n % 3) for n in range(20)])


class SendingLoop(Free):
    @resumable_step(max_iterations=3)
    def send(self, iteration: Iteration) -> None:
        for item in iteration.iterate_queryset(Item.objects.all(), "-rank", total=True, page_size=5):
            trace.append(item.code)


def test_a_queryset_is_gone_along_over_several_executions(items: list[Item]) -> None:
    workflow = run_to_end(SendingLoop.start())

    assert [item.code for item in Item.objects.order_by("-rank", "pk")] == trace
    chain = rows(workflow)
    assert [row.iterations for row in chain] == [3, 6, 9, 12, 15, 18, 20]
    assert {row.iterations_total for row in chain} == {20}
    last = Item.objects.order_by("-rank", "pk").last()
    assert last is not None
    assert_cursor(workflow, (last.rank, last.pk))


def test_the_total_is_counted_once(items: list[Item]) -> None:
    workflow = SendingLoop.start()
    with CaptureQueriesContext(connection) as queries:
        run_to_end(workflow)

    assert len([each for each in queries if "COUNT(" in each["sql"]]) == 1


def test_a_loop_that_learns_to_count_half_way_counts_what_is_left(items: list[Item]) -> None:
    class Learning(Free):
        @resumable_step(max_iterations=4)
        def send(self, iteration: Iteration) -> None:
            for _ in iteration.iterate_queryset(Item.objects.all(), total=iteration.resumed):
                pass

    workflow = run_to_end(Learning.start())

    assert [row.iterations_total for row in rows(workflow)] == [None, 20, 20, 20, 20]


def test_batches_are_updated_in_bulk_over_several_executions(items: list[Item]) -> None:
    class Marking(Free):
        @resumable_step(max_iterations=2)
        def mark(self, iteration: Iteration) -> None:
            for batch in iteration.iterate_batches(Item.objects.order_by("rank"), 3, total=True):
                trace.append(batch.update(sent=True))

    workflow = run_to_end(Marking.start())

    assert trace == [3, 3, 3, 3, 3, 3, 2]
    assert not Item.objects.filter(sent=False).exists()
    assert (rows(workflow)[-1].iterations, rows(workflow)[-1].iterations_total) == (7, 7)
    assert [outcome for _, _, outcome in history(workflow)] == [
        "continued",
        "continued",
        "continued",
        "success",
    ]


def test_a_total_can_be_told_by_the_step() -> None:
    class Pages(Free):
        @resumable_step
        def fetch(self, iteration: Iteration) -> None:
            iteration.total = 40
            iteration.set("token 1")
            trace.append(rows(self)[0].iterations_total)

    run_to_end(Pages.start())

    assert trace == [40]


@pytest.mark.parametrize("value", [-1, 1.5, "7", True])
def test_a_total_is_a_number_of_items(value: Any) -> None:
    class Pages(Free):
        @resumable_step
        def fetch(self, iteration: Iteration) -> None:
            iteration.total = value

    with pytest.raises(TypeError, match="number of items"):
        run_next_step(Pages.start())


# -- deploys


def test_a_loop_goes_on_under_its_new_name() -> None:
    class RenamedLoop(Free):
        @resumable_step(formerly=["count"])
        def tally(self, iteration: Iteration) -> None:
            CountingLoop.loop(self, iteration)  # type: ignore[arg-type]

    before = run_iterations(CountingLoop.start(), 4)
    Workflow.objects.filter(pk=before.pk).update(type=RenamedLoop._geneva.label)
    workflow = RenamedLoop.objects.get(pk=before.pk)

    at(7, stop)
    run_next_step(workflow, raise_errors=False)
    assert rows(workflow)[-1].step_name == "count"
    workflow.resume()

    assert_cursor(workflow, 7, iterations=7)
    assert active(workflow).step_name == "tally"
    run_to_end(workflow)
    assert trace == [*range(8), *range(7, 10)]


def test_a_loop_that_became_a_plain_step_runs_as_one() -> None:
    class Once(Free):
        @step
        def count(self) -> None:
            trace.append("plain")

    workflow = run_iterations(CountingLoop.start(), 4)
    Workflow.objects.filter(pk=workflow.pk).update(type=Once._geneva.label)

    run_to_end(Workflow.objects.get(pk=workflow.pk))

    assert trace[4:] == ["plain"]


# -- counts


def test_progress_ends_the_count_of_reattempts_by_policy() -> None:
    class Flaky(CountingLoop):
        @resumable_step(on_exception=ExceptionPolicy("reattempt", max_reattempts=2))
        def count(self, iteration: Iteration) -> None:
            self.loop(iteration)

    workflow = Flaky.start()
    for number in (2, 3, 3, 5, 5, 8):
        at(number, stop)
        run_next_step(workflow)
    assert active(workflow).reattempts == 1

    run_to_end(workflow)
    assert_state(workflow, "finished")


def test_reattempts_at_the_same_item_end_at_the_limit() -> None:
    class Flaky(CountingLoop):
        @resumable_step(on_exception=ExceptionPolicy("reattempt", max_reattempts=2))
        def count(self, iteration: Iteration) -> None:
            self.loop(iteration)

    workflow = Flaky.start()
    for _ in range(3):
        at(4, stop)
        run_next_step(workflow, raise_errors=False)

    assert_state(workflow, "paused")
    assert_cursor(workflow, 4, iterations=4)


def test_progress_is_known_to_recovery_too() -> None:
    class Flaky(CountingLoop):
        @resumable_step(on_exception=ExceptionPolicy("reattempt", max_reattempts=2))
        def count(self, iteration: Iteration) -> None:
            self.loop(iteration)

    workflow = Flaky.start()
    at(0, stop)
    run_next_step(workflow)
    assert active(workflow).reattempts == 1

    kill_at(workflow, 3)

    assert (active(workflow).reattempts, active(workflow).crashes) == (0, 1)


def test_no_mark_is_left_on_a_step_that_ended_although_it_was_to_stop() -> None:
    class Last(Free):
        @step
        def plain(self) -> None:
            Last.objects.get(pk=self.pk).pause()

    workflow = run_next_step(Last.start())

    assert_state(workflow, "finished")
    assert [row.held for row in rows(workflow)] == [False]


def test_a_dispatcher_s_process_that_stops_stops_the_loop_too() -> None:
    workflow = CountingLoop.start()

    execute(active(workflow).pk, runner=DispatchedRunner(None, is_stopping=lambda: len(trace) >= 3))

    assert_cursor(workflow, 3, iterations=3)
    assert rows(workflow)[0].outcome == "continued"
