"""The fast path and the portable path write the same rows, and late results are fenced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from geneva_drive import Iteration, StepExecution, Workflow, removed_step, resumable_step, step
from geneva_drive.definition.registry import registry
from geneva_drive.events import execution_finalized, workflow_transitioned
from geneva_drive.execution.executor import execute
from geneva_drive.execution.recovery import recover_one
from geneva_drive.execution.runner import Runner
from geneva_drive.testing import assert_state, assert_step
from tests.execution.support import Free, active, columns, history, run, trace
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db

Meddle = Callable[[Workflow], object]

meddle: Meddle = lambda workflow: None  # noqa: E731 - replaced by each test


@pytest.fixture
def meddling(monkeypatch: pytest.MonkeyPatch) -> Callable[[Meddle], None]:
    """Set what another process does while the body of the second step runs."""
    return lambda act: monkeypatch.setitem(globals(), "meddle", act)


class Chain(Free):
    """Plain steps, which can use the fast path; the test interferes during the second."""

    hero_model = "testapp.Order"
    may_proceed_without_hero = False
    job_options = {"priority": 4}

    @step
    def first(self) -> None:
        trace.append("first")

    @step(formerly=["old"])
    def middle(self) -> None:
        trace.append("middle")
        if trace.count("middle") == 1:
            meddle(Workflow.objects.get(pk=self.pk))

    buried = removed_step()

    @step(priority=9)
    def third(self) -> None:
        trace.append("third")

    @step
    def last(self) -> None:
        trace.append("last")
        if trace.count("last") == 1 and "middle" not in trace[-2:]:
            meddle_last(Workflow.objects.get(pk=self.pk))


class HerolessChain(Free):
    @step
    def first(self) -> None:
        pass

    @step
    def middle(self) -> None:
        if not trace:
            trace.append("middle")
            meddle(Workflow.objects.get(pk=self.pk))

    @step(wait=timedelta(hours=1))
    def later(self) -> None:
        pass


class Various(Free):
    """Steps followed by steps that are not plain, some of them not due at once."""

    @step
    def first(self) -> None:
        pass

    @step(skip_if=lambda _workflow: True)
    def passed(self) -> None:
        raise AssertionError

    @step(atomic=True, queue="slow")
    def second(self) -> None:
        pass

    @resumable_step(priority=3)
    def loop(self, iteration: Iteration) -> None:
        for _ in iteration.iterate([1, 2]):
            pass

    @step(wait=timedelta(0))
    def third(self) -> None:
        pass

    @step(wait_for="parcel")
    def waiting(self) -> None:
        pass


def meddle_last(workflow: Workflow) -> None:
    """Replaced by the tests that interfere during the last step."""


def recover(workflow: Workflow) -> None:
    row = active(workflow)
    assert recover_one(
        row.pk, workflow.pk, row.attempt_token, using="default", why="tried", still_dead=lambda: True
    )


def recover_and_begin_anew(workflow: Workflow) -> None:
    """Recover the execution as another process would; its body is still running when this one ends."""
    recover(workflow)
    StepExecution.objects.filter(pk=active(workflow).pk).update(
        state="in_progress", attempt_token="00000000-0000-0000-0000-000000000001"
    )
    Workflow.objects.filter(pk=workflow.pk).update(state="performing", current_step_name="middle")


def recover_and_pause(workflow: Workflow) -> None:
    recover(workflow)
    workflow.pause()


def recover_and_cancel(workflow: Workflow) -> None:
    recover(workflow)
    workflow.cancel()


def begin_anew_in_place(workflow: Workflow) -> None:
    StepExecution.objects.filter(pk=active(workflow).pk).update(
        attempt_token="00000000-0000-0000-0000-000000000001"
    )


def save_options(workflow: Workflow) -> None:
    workflow.job_options = {"queue": "slow"}
    workflow.metadata = {"saved": True}
    workflow.save()


MEDDLING: dict[str, Meddle] = {
    "nobody meddles": lambda workflow: None,
    "paused": lambda workflow: workflow.pause(),
    "paused and resumed": lambda workflow: workflow.pause().resume(),
    "canceled": lambda workflow: workflow.cancel(),
    "recovered": recover,
    "recovered and begun anew": recover_and_begin_anew,
    "begun anew": begin_anew_in_place,
    "recovered and paused": recover_and_pause,
    "recovered and canceled": recover_and_cancel,
    "the hero is deleted": lambda workflow: Order.objects.all().delete(),
    "metadata is saved": lambda workflow: Workflow.objects.filter(pk=workflow.pk).update(metadata={"a": 1}),
    "options are saved": save_options,
    "a failing receiver": lambda workflow: execution_finalized.connect(_fail, dispatch_uid="tried"),
}


def _fail(**_: Any) -> None:
    raise ValueError("a receiver that fails")


@pytest.fixture(autouse=True)
def _disconnected() -> Iterator[None]:
    yield
    execution_finalized.disconnect(_fail, dispatch_uid="tried")


@contextmanager
def portable() -> Iterator[None]:
    """Receivers of state changes require the portable path."""

    def listen(**_: Any) -> None:
        pass

    workflow_transitioned.connect(listen)
    try:
        yield
    finally:
        workflow_transitioned.disconnect(listen)


def play(cls: Any, options: dict[str, Any] | None, inline_continuation: bool) -> list[dict[str, Any]]:
    """Run until nothing is due; return all rows, with times replaced by their order and without random values."""
    trace.clear()
    workflow = cls.start(Order.objects.create(), job_options=options, metadata={"parcels": [1, 2.5, None]})
    for _ in range(12):
        due = StepExecution.objects.filter(workflow_id=workflow.pk, state="scheduled", on_hold=False).first()
        if due is None or execute(due.pk, runner=Runner(inline_continuation=inline_continuation)) == 0:
            break
    rows = [workflow, *StepExecution.objects.filter(workflow_id=workflow.pk).order_by("pk")]
    written = [columns(row) for row in rows]
    times = sorted({value for row in written for value in row.values() if isinstance(value, datetime)})
    ids = {row["id"]: position for position, row in enumerate(written[1:])}
    for row in written:
        for name, value in row.items():
            if isinstance(value, datetime):
                row[name] = ("time", times.index(value))
        row.pop("hero_id", None)
        row["id"] = ids[row["id"]] if "step_name" in row else None
        row["workflow_id"] = None
        row["active_workflow"] = row.get("active_workflow") is not None
        row["ongoing_key"] = row.get("ongoing_key") is not None
        row["attempt_token"] = row.get("attempt_token") is not None
    return [*written, {"trace": [*trace]}]


TRIED = [
    *((what, Chain, True, None) for what in MEDDLING),
    *((what, Chain, False, None) for what in MEDDLING),
    *((what, HerolessChain, True, None) for what in ("nobody meddles", "canceled", "metadata is saved")),
    *(("nobody meddles", Various, inline_continuation, None) for inline_continuation in (True, False)),
    *(
        (what, Chain, True, {"priority": 2, "queue": "mail"})
        for what in ("nobody meddles", "options are saved")
    ),
]


@pytest.mark.only_on("postgresql", reason="only there is another way than the portable one")
@pytest.mark.parametrize(("what", "cls", "inline_continuation", "options"), TRIED)
def test_both_paths_write_the_same_rows(
    what: str,
    cls: type[Workflow],
    inline_continuation: bool,
    options: dict[str, Any] | None,
    meddling: Callable[[Meddle], None],
) -> None:
    meddling(MEDDLING[what])

    short = play(cls, options, inline_continuation)
    Workflow.objects.all().delete()
    with portable():
        long = play(cls, options, inline_continuation)

    assert short == long


@pytest.mark.only_on("postgresql", reason="only there is another way than the portable one")
@pytest.mark.parametrize("what", ["paused", "canceled", "recovered", "begun anew"])
def test_both_paths_complete_the_last_step_in_the_same_way(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "meddle_last", MEDDLING[what])

    short = play(Chain, None, True)
    Workflow.objects.all().delete()
    with portable():
        long = play(Chain, None, True)

    assert short == long


@pytest.mark.only_on(
    "postgresql", reason="only there a step is ended and the next one begun in one statement"
)
@pytest.mark.django_db(transaction=True)
def test_a_plain_step_needs_one_statement() -> None:
    workflow = HerolessChain.start()
    pk = active(workflow).pk

    with CaptureQueriesContext(connection) as captured:
        execute(pk)

    writes = [query["sql"] for query in captured.captured_queries if query["sql"].lstrip()[:4] == "WITH"]
    # Start the first, hand off to the second, end that and leave the third scheduled.
    assert len(writes) == 3
    assert not [query for query in captured.captured_queries if query["sql"].startswith(("UPDATE", "INSERT"))]


def test_a_chain_runs_each_step_once_on_every_database() -> None:
    rows = play(Chain, None, True)

    assert rows[-1] == {"trace": ["first", "middle", "third", "last"]}
    assert [(row["step_name"], row["state"], row["outcome"]) for row in rows[1:-1]] == [
        (name, "completed", "success") for name in ("first", "middle", "third", "last")
    ]
    assert rows[0]["state"] == "finished"
    # Each started in the commit that ended the one before.
    for before, after in pairwise(rows[1:-1]):
        assert before["finished_at"] == after["started_at"] == after["created_at"]
        assert (before["handed_off"], after["handed_off"]) == (before["id"] != 0, True)


@pytest.mark.parametrize(
    ("what", "state", "rows"),
    [
        ("paused", "paused", [("completed", "success"), ("scheduled", None)]),
        ("paused and resumed", "finished", 3 * [("completed", "success")]),
        ("canceled", "canceled", [("canceled", "canceled")]),
        ("recovered", "finished", [("failed", "recovered"), *3 * [("completed", "success")]]),
        ("begun anew", "performing", [("in_progress", None)]),
        ("recovered and begun anew", "performing", [("failed", "recovered"), ("in_progress", None)]),
        ("recovered and paused", "paused", [("failed", "recovered"), ("scheduled", None)]),
        ("recovered and canceled", "canceled", [("failed", "recovered"), ("canceled", "canceled")]),
        ("the hero is deleted", "canceled", [("completed", "success"), ("canceled", "canceled")]),
        ("options are saved", "finished", 3 * [("completed", "success")]),
    ],
)
@pytest.mark.parametrize("way", [nullcontext, portable])
def test_actions_during_a_body_are_honored_when_it_ends(
    what: str,
    state: str,
    rows: list[tuple[str, str | None]],
    way: Callable[[], Any],
    meddling: Callable[[Meddle], None],
) -> None:
    meddling(MEDDLING[what])

    with way():
        written = play(Chain, None, True)

    assert written[0]["state"] == state
    assert [(row["state"], row["outcome"]) for row in written[2:-1]] == rows


def test_a_late_result_is_logged_and_reported_and_writes_nothing(
    meddling: Callable[[Meddle], None], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[str, bool]] = []

    def listen(execution: StepExecution, fenced: bool, **_: Any) -> None:
        told.append((execution.step_name, fenced))

    before: list[Any] = []

    def act(workflow: Workflow) -> None:
        recover_and_begin_anew(workflow)
        before.extend([columns(workflow), *(columns(row) for row in workflow.executions.order_by("pk"))])

    meddling(act)
    workflow = Chain.start(Order.objects.create())
    execution_finalized.connect(listen)
    try:
        run(workflow, inline_continuation=True)
    finally:
        execution_finalized.disconnect(listen)

    after = [columns(workflow), *(columns(row) for row in workflow.executions.order_by("pk"))]
    assert after == before
    assert told[-1] == ("middle", True)
    assert "was recovered or changed while the step was running" in caplog.text


@pytest.mark.parametrize("gone", ["execution", "workflow"])
def test_a_deleted_row_is_fenced_too(gone: str, meddling: Callable[[Meddle], None]) -> None:
    def act(workflow: Workflow) -> None:
        StepExecution.objects.filter(workflow_id=workflow.pk).delete()
        if gone == "workflow":
            Workflow.objects.filter(pk=workflow.pk).delete()

    meddling(act)
    workflow = Chain.start(Order.objects.create())

    execute(active(workflow).pk)

    assert trace == ["first", "middle"]
    assert StepExecution.objects.count() == 0
    assert Workflow.objects.count() == (gone == "execution")


def test_a_key_that_a_body_changed_on_its_instance_changes_no_row() -> None:
    class LosesItself(Free):
        @step
        def loses(self) -> None:
            self.pk = None

        @step
        def after(self) -> None:
            trace.append("after")

    workflow = LosesItself.start()

    run(workflow, inline_continuation=True)

    assert trace == ["after"]
    assert_state(workflow, "finished")


@pytest.mark.parametrize("wrong", [{"wait": "soon"}, {"priority": "high"}, {"wait_until": 5}])
@pytest.mark.parametrize("atomic", [False, True])
def test_unreadable_options_pause_before_the_next_step_and_keep_the_completed_one(
    wrong: dict[str, Any], atomic: bool
) -> None:
    class Spoilt(Free):
        @step(atomic=atomic)
        def done(self) -> None:
            trace.append("done")
            # Written directly to the database, without any check.
            Workflow.objects.filter(pk=self.pk).update(job_options=wrong)

        @step
        def next(self) -> None:
            trace.append("next")

    workflow = Spoilt.start()

    run(workflow, inline_continuation=True)

    assert trace == ["done"]
    ended = assert_step(workflow, "done", "completed", "success")
    assert "not_scheduled" in ended.metadata
    assert_state(workflow, "paused")
    assert workflow.next_step_name == "next"

    Workflow.objects.update(job_options=None)
    workflow.resume()
    run(workflow)
    assert_state(workflow, "finished")


@override_settings(GENEVA_DRIVE={"INLINE_CONTINUATION": False})
def test_the_setting_ends_each_run_after_one_step() -> None:
    workflow = Chain.start(Order.objects.create())

    assert execute(active(workflow).pk) == 1

    assert history(workflow) == [("first", "completed", "success"), ("middle", "scheduled", None)]


def test_a_run_stops_where_the_next_step_is_on_another_queue_or_due_later() -> None:
    class AnotherQueue(Free):
        @step
        def here(self) -> None:
            pass

        @step(queue="slow")
        def there(self) -> None:
            pass

        @step(queue="slow", wait=timedelta(minutes=1))
        def later(self) -> None:
            pass

    workflow = AnotherQueue.start()

    assert run(workflow, inline_continuation=True) == 1
    assert history(workflow)[-1] == ("there", "scheduled", None)
    assert run(workflow, inline_continuation=True) == 1
    assert history(workflow)[-1] == ("later", "scheduled", None)


def test_after_an_exception_nothing_else_runs_and_it_is_raised() -> None:
    class RaisesThenGoes(Free):
        @step
        def one(self) -> None:
            raise ValueError("no")

        @step
        def two(self) -> None:
            trace.append("two")

    workflow = RaisesThenGoes.start()

    with pytest.raises(ValueError, match="no"):
        run(workflow, inline_continuation=True)

    assert trace == []
    assert registry.get("testapp.RaisesThenGoes") is RaisesThenGoes
