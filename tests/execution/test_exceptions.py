"""Exceptions of steps on real rows: what follows, how often, and what is recorded."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection, transaction

from geneva_drive import ExceptionPolicy, Workflow, cancel_if, clock, on_exception, step
from geneva_drive.conf import settings as geneva
from geneva_drive.exceptions import HeroModelGone, InvalidStateError
from geneva_drive.execution import executor
from geneva_drive.housekeeping import recover
from geneva_drive.models import StepExecution
from geneva_drive.testing import (
    assert_state,
    assert_step,
    crash_at,
    run_next_step,
    run_step,
    run_to_end,
    travel,
)
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db

ERRORS = "geneva_drive.errors"


class Busy(Exception):
    pass


class Script(list[Any]):
    """What the attempts at a step do, one after the other, and what was seen of them."""

    def __call__(self, workflow: Workflow) -> None:
        Scripted.runs += 1
        todo = self.pop(0) if len(self) > 1 else self[0]
        if isinstance(todo, BaseException):
            # Without what earlier attempts left on it: the same one may be raised a hundred times.
            raise todo.with_traceback(None)
        if todo is not None:
            todo(workflow)


class Scripted(Workflow):
    """Runs a script in its first step."""

    may_proceed_without_hero = True
    script: ClassVar[Script]
    runs: ClassVar[int] = 0
    handled: ClassVar[list[Any]] = []

    class Meta:
        abstract = True
        app_label = "testapp"


@pytest.fixture(autouse=True)
def _counted_from_zero() -> None:
    Scripted.runs = 0
    Scripted.handled = []


def play(cls: type[Scripted], *script: Any, **given: Any) -> Any:
    """Start a workflow whose first step does this; the last item again and again."""
    Scripted.script = Script(script)
    return cls.start(**given)


def rows(workflow: Workflow) -> list[StepExecution]:
    return list(workflow.executions.order_by("pk"))


# -- limits


class FailsOnce(Scripted):
    @step(on_exception=ExceptionPolicy("reattempt", max_reattempts=1))
    def work(self) -> None:
        self.script(self)

    @step
    def after(self) -> None: ...


class FailsThrice(Scripted):
    @step(on_exception=ExceptionPolicy("reattempt", max_reattempts=3), formerly=["labour"])
    def work(self) -> None:
        self.script(self)

    @step
    def after(self) -> None: ...


class FailsEver(Scripted):
    @step(on_exception=ExceptionPolicy("reattempt", max_reattempts=None))
    def work(self) -> None:
        self.script(self)


class FailsShort(Scripted):
    @step(on_exception="reattempt")
    def work(self) -> None:
        self.script(self)


@pytest.mark.parametrize(("cls", "reattempts"), [(FailsOnce, 1), (FailsThrice, 3), (FailsShort, 100)])
def test_a_limit_of_n_means_one_run_and_n_more(cls: type[Scripted], reattempts: int) -> None:
    workflow = run_to_end(play(cls, Busy("still")))

    assert Scripted.runs == 1 + reattempts
    assert_state(workflow, "paused")
    assert workflow.next_step_name == "work"
    executions = rows(workflow)
    assert [row.outcome for row in executions] == ["reattempted"] * reattempts + ["failed"]
    assert {row.error_message for row in executions} == {"still"}
    assert [row.reattempts for row in executions] == list(range(reattempts + 1))
    assert executions[-1].metadata["reason"] == f"used up its reattempts: {reattempts} in a row"


def test_without_a_limit_it_goes_on_and_never_spins() -> None:
    workflow = run_to_end(play(FailsEver, *[Busy()] * 105, None))

    assert Scripted.runs == 106
    assert_state(workflow, "finished")
    for row in rows(workflow)[1:]:
        assert clock.utc(row.scheduled_for) - clock.utc(row.created_at) == timedelta(seconds=1)


def test_a_success_in_between_ends_the_count() -> None:
    workflow = run_to_end(play(FailsThrice, Busy(), Busy(), Busy(), None, Busy()))

    assert_state(workflow, "finished")
    assert Scripted.runs == 4
    # Another visit to the step has all of its reattempts again.
    second = play(FailsThrice, Busy())
    assert Scripted.runs == 4
    run_to_end(second)
    assert Scripted.runs == 8


def test_a_reattempt_that_the_step_itself_asks_for_does_not_count_and_ends_the_count() -> None:
    again: Callable[[Workflow], Any] = lambda workflow: workflow.reattempt()  # noqa: E731
    workflow = run_to_end(
        play(FailsThrice, Busy(), Busy(), Busy(), again, again, Busy(), Busy(), Busy(), Busy(), None)
    )

    assert_state(workflow, "paused")
    assert Scripted.runs == 3 + 2 + 4
    assert [row.reattempts for row in rows(workflow)] == [0, 1, 2, 3, 0, 0, 1, 2, 3]


def test_a_crash_neither_counts_nor_ends_the_count() -> None:
    workflow = play(FailsThrice, Busy())
    run_next_step(workflow)
    run_next_step(workflow)
    with crash_at("prepared"):
        run_next_step(workflow)
    with travel(geneva.STUCK_AFTER + timedelta(minutes=1)):
        assert recover(str(workflow._state.db)).recovered == 1
        run_to_end(workflow)

    assert_state(workflow, "paused")
    # The one that crashed never began.
    assert Scripted.runs == 4
    assert [row.outcome for row in rows(workflow)] == [
        "reattempted",
        "reattempted",
        "recovered",
        "reattempted",
        "failed",
    ]


def test_crashes_are_counted_across_reattempts() -> None:
    """A step that fails and crashes in turn ends by the limit of crashes, if not before."""
    workflow = play(FailsEver, Busy())
    with contextlib.ExitStack() as later:
        for _ in range(geneva.MAX_CRASHES):
            run_next_step(workflow)
            with crash_at("performed"):
                run_next_step(workflow)
            later.enter_context(travel(geneva.STUCK_AFTER + timedelta(minutes=1)))
            assert recover(str(workflow._state.db)).recovered == 1
            workflow.refresh_from_db()

    assert_state(workflow, "paused")
    assert rows(workflow)[-1].metadata["reason"] == "crashed 3 times in a row"


@pytest.mark.parametrize("how", ["resume", "resume_at", "resume what was scheduled"])
def test_an_operator_begins_the_count_anew(how: str) -> None:
    workflow = play(FailsThrice, Busy())
    if how == "resume what was scheduled":
        run_next_step(workflow)
        run_next_step(workflow)
        workflow.pause(by="anna")
        workflow.resume(by="anna")
        done = 2
    else:
        run_to_end(workflow)
        done = 4
        if how == "resume":
            workflow.resume(by="anna")
        else:
            workflow.resume_at("work", by="anna")

    assert rows(workflow)[-1].reattempts == 0
    run_to_end(workflow)
    assert Scripted.runs == done + 4


def test_the_count_follows_a_step_that_is_renamed() -> None:
    workflow = play(FailsThrice, Busy())
    run_next_step(workflow)
    workflow.executions.filter(state="scheduled").update(step_name="labour")

    run_to_end(workflow)

    assert Scripted.runs == 4
    assert [row.step_name for row in rows(workflow)] == ["work", "labour", "work", "work"]


def test_what_a_step_writes_on_its_row_does_not_touch_the_count() -> None:
    def scribble(workflow: Any) -> None:
        workflow.current_execution.metadata = {"mine": True}
        workflow.current_execution.save()
        raise Busy

    workflow = run_to_end(play(FailsThrice, scribble))

    assert Scripted.runs == 4
    assert rows(workflow)[1].metadata["mine"] is True


class FailsListed(Scripted):
    @step(
        on_exception=[
            ExceptionPolicy("reattempt", matching=Busy, max_reattempts=50, terminal_action="skip"),
            ExceptionPolicy("reattempt", max_reattempts=2, terminal_action="cancel"),
        ]
    )
    def work(self) -> None:
        self.script(self)


@pytest.mark.parametrize(
    ("script", "state"), [((KeyError(), Busy()), "finished"), ((Busy(), KeyError()), "canceled")]
)
def test_a_list_shares_its_smallest_limit_and_the_matched_policy_ends(script: Any, state: str) -> None:
    workflow = run_to_end(play(FailsListed, *script))

    assert Scripted.runs == 3
    assert_state(workflow, state)


# -- waits


class FailsPatiently(Scripted):
    @step(
        wait=timedelta(days=3),
        on_exception=[
            ExceptionPolicy("reattempt", matching=Busy, wait=timedelta(hours=2)),
            ExceptionPolicy("reattempt", matching=KeyError, wait="exponential"),
            ExceptionPolicy("reattempt", matching=OSError, wait=lambda attempt: timedelta(minutes=attempt)),
            ExceptionPolicy("reattempt", matching=TypeError),
            ExceptionPolicy("reattempt", wait=lambda attempt: timedelta(minutes=10 / (attempt - 1))),
        ],
    )
    def work(self) -> None:
        self.script(self)


def test_the_wait_is_the_policys_and_not_the_steps() -> None:
    workflow = run_to_end(play(FailsPatiently, Busy(), KeyError(), OSError(), TypeError(), None))

    waits = [clock.utc(row.scheduled_for) - clock.utc(row.created_at) for row in rows(workflow)]
    assert waits[0] == timedelta(days=3)
    assert waits[1] == timedelta(hours=2)
    assert timedelta(seconds=3.3) < waits[2] <= timedelta(seconds=4)
    assert waits[3] == timedelta(minutes=3)
    assert waits[4] == timedelta(0)


def test_a_wait_that_raises_pauses_with_both_errors_recorded(caplog: pytest.LogCaptureFixture) -> None:
    workflow = play(FailsPatiently, ValueError("the first"))

    with pytest.raises(ZeroDivisionError) as caught:
        run_next_step(workflow)

    assert isinstance(caught.value.__context__, ValueError)
    assert_state(workflow, "paused")
    execution = assert_step(workflow, "work", "failed", "failed")
    assert execution.error_class == "builtins.ValueError"
    assert execution.error_message is not None
    assert execution.error_message.startswith("the first\n\nThen the policy's wait raised builtins.Zero")
    assert execution.error_traceback is not None
    assert "ValueError: the first" in execution.error_traceback
    assert "ZeroDivisionError" in execution.error_traceback
    assert execution.metadata["reason"] == "the policy's wait raised ZeroDivisionError"
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [caught.value]


# -- ends


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
def test_what_a_policy_does(error: Exception, state: str, outcome: str, becomes: str) -> None:
    workflow = run_to_end(play(FailsAndEnds, error))

    assert_state(workflow, becomes)
    execution = assert_step(workflow, "work", state, outcome)
    assert execution.error_class == f"{type(error).__module__}.{type(error).__qualname__}"
    assert execution.finished_at is not None
    assert workflow.executions.filter(step_name="after").exists() is (becomes == "finished")


def test_a_lazy_name_is_looked_up_when_it_is_needed() -> None:
    from decimal import InvalidOperation

    assert_state(run_to_end(play(FailsAndEnds, InvalidOperation())), "finished")


def test_without_a_policy_it_pauses_and_is_raised_again_after_the_commit() -> None:
    workflow = play(FailsAndEnds, TypeError("nobody thought of it"))

    with pytest.raises(TypeError, match="nobody thought of it"):
        run_next_step(workflow)

    assert_state(workflow, "paused")
    assert_step(workflow, "work", "failed", "failed")


def test_after_an_exception_nothing_is_claimed_straight_on() -> None:
    workflow = play(FailsAndEnds, OSError())
    (row,) = rows(workflow)

    assert executor.execute(row.pk) == 1

    assert_state(workflow, "ready")
    assert_step(workflow, "after", "scheduled")


# -- preconditions and look-ups


class FailsGuarded(Scripted):
    exception_policies: ClassVar[list[Any]] = [
        ExceptionPolicy("reattempt", matching=Busy, max_reattempts=2, terminal_action="cancel")
    ]

    @cancel_if
    def gone(self) -> bool:
        self.script(self)
        return False

    @step
    def work(self) -> None:
        Scripted.handled.append("body")


def test_a_condition_that_raises_meets_the_same_policies() -> None:
    workflow = run_to_end(play(FailsGuarded, Busy(), Busy(), None))

    assert_state(workflow, "finished")
    assert Scripted.handled == ["body"]

    workflow = run_to_end(play(FailsGuarded, Busy()))
    assert_state(workflow, "canceled")
    assert [row.outcome for row in rows(workflow)] == ["reattempted", "reattempted", "canceled"]
    assert Scripted.handled == ["body"]


class FailsHeroic(Workflow):
    hero_model = "testapp.Order"
    exception_policies: ClassVar[list[Any]] = [ExceptionPolicy("skip")]

    class Meta:
        app_label = "testapp"

    @step
    def work(self) -> None:
        Scripted.handled.append("body")

    @step
    def after(self) -> None: ...


@pytest.fixture
def hero_model_gone() -> Iterator[Callable[[], None]]:
    """A function after which heroes cannot be looked up: their model is not installed any more."""

    def gone() -> None:
        ContentType.objects.filter(model="order").update(model="gone")
        ContentType.objects.clear_cache()

    yield gone
    ContentType.objects.clear_cache()


def test_a_look_up_of_the_hero_that_fails_meets_them_too(hero_model_gone: Callable[[], None]) -> None:
    workflow = FailsHeroic.start(Order.objects.create())
    hero_model_gone()

    run_next_step(workflow)

    execution = assert_step(workflow, "work", "skipped", "skipped")
    assert execution.error_class == "geneva_drive.exceptions.HeroModelGone"
    assert Scripted.handled == []


def test_no_policy_is_followed_into_a_step_that_is_not_defined(hero_model_gone: Callable[[], None]) -> None:
    """A failing look-up on a row whose step this code does not know: skip has no next, reattempt no same."""
    workflow = FailsHeroic.start(Order.objects.create())
    workflow.executions.update(step_name="unknown")
    hero_model_gone()

    with pytest.raises(HeroModelGone):
        run_next_step(workflow)

    assert_state(workflow, "paused")
    execution = assert_step(workflow, "unknown", "failed", "failed")
    assert execution.metadata["reason"] == "the policy 'skip' cannot be followed, for the step is not defined"


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


# -- handlers


class FailsHandled(Scripted):
    reacts: ClassVar[Callable[..., Any]]

    @step
    def work(self) -> None:
        self.left_behind = "by the body"
        self.script(self)

    @step
    def after(self) -> None: ...

    @on_exception(Busy, max_reattempts=2, terminal_action="cancel")
    def react(self, error: Exception) -> None:
        Scripted.handled.append((error, self.left_behind, self.current_execution.pk))
        type(self).reacts(self, error)


def react(workflow_cls: type[FailsHandled], reacts: Callable[..., Any]) -> None:
    workflow_cls.reacts = staticmethod(reacts)


@pytest.mark.parametrize(
    ("word", "state", "outcome", "becomes"),
    [
        ("pause", "failed", "failed", "paused"),
        ("cancel", "failed", "canceled", "canceled"),
        ("skip", "skipped", "skipped", "finished"),
        ("finish", "completed", "success", "finished"),
    ],
)
def test_a_handler_decides_by_flow_control(word: str, state: str, outcome: str, becomes: str) -> None:
    error = Busy("too much")
    react(FailsHandled, lambda workflow, _: getattr(workflow, word)(reason="said so"))

    workflow = run_to_end(play(FailsHandled, error))

    assert_state(workflow, becomes)
    execution = assert_step(workflow, "work", state, outcome)
    assert Scripted.handled == [(error, "by the body", execution.pk)]
    assert execution.error_message == "too much"
    assert execution.metadata["policy"] == "react"
    assert execution.metadata["reason"] == "said so"


def test_a_handlers_reattempts_count_and_end() -> None:
    react(FailsHandled, lambda workflow, _: workflow.reattempt(wait=timedelta(hours=5)))

    workflow = run_to_end(play(FailsHandled, Busy()))

    assert_state(workflow, "canceled")
    assert Scripted.runs == 3
    waits = [clock.utc(row.scheduled_for) - clock.utc(row.created_at) for row in rows(workflow)]
    assert waits == [timedelta(0), timedelta(hours=5), timedelta(hours=5)]


def test_a_handler_that_decides_nothing_pauses_the_workflow() -> None:
    react(FailsHandled, lambda workflow, _: None)
    workflow = play(FailsHandled, Busy("unanswered"))

    with pytest.raises(Busy, match="unanswered"):
        run_next_step(workflow)

    assert_state(workflow, "paused")
    execution = assert_step(workflow, "work", "failed", "failed")
    assert execution.metadata["reason"] == "the handler 'react' decided nothing"


@pytest.mark.parametrize("second", [KeyError("the second"), SystemExit(3)])
def test_a_handler_that_raises_pauses_with_both_errors_recorded(second: BaseException) -> None:
    def raises(workflow: Any, error: Exception) -> None:
        raise second

    react(FailsHandled, raises)
    workflow = play(FailsHandled, Busy("the first"))

    with pytest.raises(type(second)) as caught:
        run_next_step(workflow)

    assert caught.value.__context__ is not None
    assert_state(workflow, "paused")
    execution = assert_step(workflow, "work", "failed", "failed")
    assert execution.error_class == f"{__name__}.Busy"
    assert execution.error_message is not None
    assert "the first\n\nThen the handler 'react' raised builtins." in execution.error_message
    assert execution.error_traceback is not None
    assert "Busy: the first" in execution.error_traceback
    assert type(second).__name__ in execution.error_traceback


def test_a_handler_that_raises_the_same_error_again_records_it_once() -> None:
    def raises(workflow: Any, error: Exception) -> None:
        raise error

    react(FailsHandled, raises)
    workflow = play(FailsHandled, Busy("not mine"))

    with pytest.raises(Busy):
        run_next_step(workflow)

    execution = assert_step(workflow, "work", "failed", "failed")
    assert execution.error_message == "not mine"
    assert execution.metadata["reason"] == "the handler 'react' raised Busy"


def test_a_handler_holds_no_lock_and_no_transaction() -> None:
    seen: list[Any] = []

    def looks(workflow: Any, error: Exception) -> None:
        seen.append(len(connection.atomic_blocks))
        with pytest.raises(InvalidStateError, match=r"transaction\.atomic"), transaction.atomic():
            workflow.skip()
        workflow.skip()

    react(FailsHandled, looks)
    outside = len(connection.atomic_blocks)

    run_to_end(play(FailsHandled, Busy()))

    assert seen == [outside]


def test_what_a_handler_decides_is_fenced(caplog: pytest.LogCaptureFixture) -> None:
    def meanwhile(workflow: Any, error: Exception) -> None:
        # Recovered meanwhile: the row is not ours any more.
        with travel(geneva.STUCK_AFTER + timedelta(minutes=1)):
            recover(str(workflow._state.db))
        workflow.cancel()

    react(FailsHandled, meanwhile)
    workflow = run_next_step(play(FailsHandled, Busy()))

    assert_state(workflow, "ready")
    assert [row.outcome for row in rows(workflow)] == ["recovered", None]
    assert "was moved while its body ran" in caplog.text


def test_suspending_is_not_for_handlers() -> None:
    react(FailsHandled, lambda workflow, _: workflow.suspend())

    workflow = play(FailsHandled, Busy())
    with pytest.raises(InvalidStateError, match="suspend"):
        run_next_step(workflow)

    assert_state(workflow, "paused")


class FailsAsync(Scripted):
    exception_policies: ClassVar[list[Any]] = [
        ExceptionPolicy(matching=KeyError, handler=lambda workflow, error: workflow.skip())
    ]

    @step
    async def work(self) -> None:
        self.script(self)

    @on_exception(Busy)
    async def react(self, error: Exception) -> None:
        self.cancel(reason="asked for")


@pytest.mark.parametrize(("error", "becomes"), [(Busy(), "canceled"), (KeyError(), "finished")])
def test_handlers_may_be_async_or_plain_callables(error: Exception, becomes: str) -> None:
    assert_state(run_to_end(play(FailsAsync, error)), becomes)


class BrokenMatcher:
    def matches(self, error: Exception) -> bool:
        raise LookupError("the matcher's own mistake")


class FailsMismatched(Scripted):
    @step(on_exception=[ExceptionPolicy("skip", matching=BrokenMatcher()), "skip"])
    def work(self) -> None:
        self.script(self)


def test_a_matcher_that_raises_pauses_with_both_errors_recorded() -> None:
    workflow = play(FailsMismatched, Busy("the first"))

    with pytest.raises(LookupError):
        run_next_step(workflow)

    assert_state(workflow, "paused")
    execution = assert_step(workflow, "work", "failed", "failed")
    assert execution.error_message is not None
    assert "the first\n\nThen a policy's matching raised" in execution.error_message


# -- what ends processes is a crash


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_policies_do_not_see_what_ends_processes(error: BaseException) -> None:
    workflow = play(FailsShort, error)

    with pytest.raises(type(error)):
        run_next_step(workflow)

    first, second = rows(workflow)
    assert (first.state, first.outcome) == ("failed", "recovered")
    assert (second.crashes, second.reattempts) == (1, 0)


# -- reports


class FailsReporting(Scripted):
    @step(
        on_exception=[
            ExceptionPolicy("reattempt", matching=Busy, max_reattempts=2, report="terminal_only"),
            ExceptionPolicy("reattempt", matching=KeyError, max_reattempts=2, report="never"),
            ExceptionPolicy("reattempt", matching=OSError, max_reattempts=2),
            ExceptionPolicy("skip", matching=TypeError, report="terminal_only"),
            ExceptionPolicy("skip", matching=ValueError, report="never"),
        ]
    )
    def work(self) -> None:
        self.script(self)


@pytest.mark.parametrize(
    ("error", "reports"),
    [(Busy(), 1), (KeyError(), 0), (OSError(), 3), (TypeError(), 1), (ValueError(), 0), (LookupError(), 1)],
)
def test_an_error_is_reported_as_its_policy_says(
    error: Exception, reports: int, caplog: pytest.LogCaptureFixture
) -> None:
    workflow = run_to_end(play(FailsReporting, error), raise_errors=False)

    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.exc_info[1] for record in logged if record.exc_info] == [error] * reports
    for record in logged:
        assert record.name == ERRORS
        assert vars(record)["workflow_type"] == "testapp.FailsReporting"
        assert vars(record)["workflow_id"] == workflow.pk
        assert vars(record)["step"] == "work"
        assert vars(record)["execution_id"] in {row.pk for row in rows(workflow)}


# -- recording never fails


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class TwoArguments(Exception):
    def __init__(self, first: Any, second: Any) -> None:
        super().__init__()
        self.both = first, second


def deep() -> Exception:
    try:
        _recurse()
    except RecursionError as error:
        return error
    raise AssertionError


def _recurse() -> None:
    _recurse()


def chained(length: int) -> Exception:
    error = Busy("the innermost")
    for number in range(length):
        outer = Busy(f"number {number}")
        outer.__cause__ = error
        error = outer
    return error


class FailsBare(Scripted):
    @step
    def work(self) -> None:
        self.script(self)


HOSTILE: dict[str, Callable[[], Exception]] = {
    "letters beyond three bytes": lambda: Busy("🧨 𝒳 \U0010ffff"),
    "a long text": lambda: Busy("x" * 200_000),
    "NUL and a lone surrogate": lambda: Busy("a\0b\ud800c"),
    "a deep recursion": deep,
    "a text that raises": Unprintable,
    "a text that ends processes": Unspeakable,
    "two arguments": lambda: TwoArguments(1, 2),
    "a chain": lambda: chained(300),
    "a group": lambda: ExceptionGroup("many", [Busy(str(number)) for number in range(500)]),
    "a long name": lambda: type("L" * 400, (Exception,), {})("named"),
    "no arguments": Exception,
}


@pytest.mark.parametrize("handled", [False, True], ids=["without a policy", "handled"])
@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
def test_whatever_the_error_it_is_recorded_and_the_workflow_paused(
    make: Callable[[], Exception], handled: bool
) -> None:
    error = make()
    cls = FailsShort if handled else FailsBare
    workflow = play(cls, error)
    if handled:
        run_next_step(workflow)
        execution = assert_step(workflow, "work", "scheduled")
        execution = rows(workflow)[0]
        assert execution.outcome == "reattempted"
    else:
        with pytest.raises(type(error)):
            run_next_step(workflow)
        assert_state(workflow, "paused")
        execution = assert_step(workflow, "work", "failed", "failed")

    assert execution.error_class
    assert len(execution.error_class) <= 255
    assert execution.error_class.startswith(type(error).__module__)
    for text in (execution.error_message, execution.error_traceback):
        assert text is not None
        assert len(text) <= geneva.MAX_ERROR_CHARACTERS
        assert "\0" not in text


def test_one_step_may_be_run_again_by_hand_after_it_failed() -> None:
    workflow = run_to_end(play(FailsOnce, Busy(), Busy(), None))
    assert_state(workflow, "paused")

    run_step(workflow, "work")

    assert_state(workflow, "ready")
    assert workflow.next_step_name == "after"
