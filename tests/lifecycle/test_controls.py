"""Moving a workflow by hand: what each control does in each state, and what it leaves written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.template import Context, Template

from geneva_drive import (
    InvalidStateError,
    StepExecution,
    StepNotDefinedError,
    Workflow,
    clock,
    removed_step,
    step,
)
from geneva_drive.execution.recovery import recover_one
from geneva_drive.testing import assert_state, assert_step, run_next_step, run_to_end
from tests.execution.support import Free, active, everything, history, run, trace
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db


class Moved(Free):
    @step
    def one(self) -> None:
        trace.append("one")

    @step(wait=timedelta(days=1), formerly=["zwei"])
    def two(self) -> None:
        trace.append("two")
        if trace.count("two") == 1 and "fail" in trace:
            raise ValueError("the first time")

    buried = removed_step()

    @step
    def three(self) -> None:
        trace.append("three")


def ready() -> Workflow:
    """Waits for its second step."""
    return run_next_step(Moved.start())


def paused() -> Workflow:
    return ready().pause()


def failed() -> Workflow:
    """Paused, since its second step raised."""
    trace.append("fail")
    workflow = run_next_step(ready(), raise_errors=False)
    assert workflow.state == "paused"
    return workflow


def performing() -> Workflow:
    workflow = ready()
    StepExecution.objects.filter(pk=active(workflow).pk).update(state="in_progress")
    Workflow.objects.filter(pk=workflow.pk).update(state="performing", current_step_name="two")
    workflow.refresh_from_db()
    return workflow


def pause_requested() -> Workflow:
    return performing().pause()


def finished() -> Workflow:
    return run_to_end(Moved.start())


def canceled() -> Workflow:
    return ready().cancel()


CONTROLS: dict[str, Callable[[Any], Any]] = {
    "pause": lambda workflow: workflow.pause(by="eve", reason="r"),
    "resume": lambda workflow: workflow.resume(by="eve", reason="r"),
    "resume_at": lambda workflow: workflow.resume_at("three", by="eve", reason="r"),
    "skip": lambda workflow: workflow.skip(by="eve", reason="r"),
    "cancel": lambda workflow: workflow.cancel(by="eve", reason="r"),
}

# What the workflow becomes and where it points, and how its second step's row and the one after stand.
Expected = tuple[str, str | None, list[tuple[str, str, str | None]]]
TWO_WAITS = ("two", "scheduled", None)
TWO_RUNS = ("two", "in_progress", None)
TWO_FAILED = ("two", "failed", "failed")
TWO_SKIPPED = ("two", "skipped", "skipped")
TWO_CANCELED = ("two", "canceled", "canceled")
THREE_WAITS = ("three", "scheduled", None)

DONE: dict[tuple[Callable[[], Workflow], str], Expected] = {
    (ready, "pause"): ("paused", "two", [TWO_WAITS]),
    (ready, "skip"): ("ready", "three", [TWO_SKIPPED, THREE_WAITS]),
    (ready, "cancel"): ("canceled", None, [TWO_CANCELED]),
    (paused, "resume"): ("ready", "two", [TWO_WAITS]),
    (paused, "resume_at"): ("ready", "three", [TWO_CANCELED, THREE_WAITS]),
    (paused, "skip"): ("ready", "three", [TWO_SKIPPED, THREE_WAITS]),
    (paused, "cancel"): ("canceled", None, [TWO_CANCELED]),
    (failed, "resume"): ("ready", "two", [TWO_FAILED, TWO_WAITS]),
    (failed, "resume_at"): ("ready", "three", [TWO_FAILED, THREE_WAITS]),
    (failed, "skip"): ("ready", "three", [TWO_FAILED, THREE_WAITS]),
    (failed, "cancel"): ("canceled", None, [TWO_FAILED]),
    (performing, "pause"): ("performing", "two", [TWO_RUNS]),
    (performing, "cancel"): ("canceled", None, [TWO_RUNS]),
    (pause_requested, "pause"): ("performing", "two", [TWO_RUNS]),
    (pause_requested, "resume"): ("performing", "two", [TWO_RUNS]),
    (pause_requested, "cancel"): ("canceled", None, [TWO_RUNS]),
}
STATES = [ready, paused, failed, performing, pause_requested, finished, canceled]
REFUSED = [(state, word) for state in STATES for word in CONTROLS if (state, word) not in DONE]


def _name(value: Any) -> str | None:
    return getattr(value, "__name__", None)


@pytest.mark.parametrize(("state", "word"), list(DONE), ids=_name)
def test_a_control_moves_the_rows_and_shows_it_on_the_instance(
    state: Callable[[], Workflow], word: str
) -> None:
    becomes, points_at, rows = DONE[state, word]
    workflow = state()
    before = (workflow.state, workflow.next_step_name)

    assert CONTROLS[word](workflow) is workflow

    shown = (workflow.state, workflow.next_step_name, workflow.current_step_name, workflow.pause_requested_at)
    workflow.refresh_from_db()
    assert shown == (
        workflow.state,
        workflow.next_step_name,
        workflow.current_step_name,
        workflow.pause_requested_at,
    )
    assert (workflow.state, workflow.next_step_name) == (becomes, points_at)
    assert history(workflow)[1:] == rows
    for row in workflow.executions.all():
        assert (row.finished_at is not None) is (row.state not in ("scheduled", "in_progress"))
        # In flight it is the mark that somebody waits for it to stop, which a loop meets at its next item.
        wanted_to_stop = workflow.pause_requested_at is not None or workflow.state == "canceled"
        held_back = row.state == "scheduled" and workflow.state == "paused"
        assert row.held is (held_back or (row.state == "in_progress" and wanted_to_stop))
    note = workflow.operator_actions.order_by("pk").last()
    assert note is not None
    assert (note.action, note.actor, note.reason) == (word, "eve", "r")
    assert (note.before["state"], note.before["next_step"]) == before
    assert (note.after["state"], note.after["next_step"]) == (becomes, points_at)


@pytest.mark.parametrize(("state", "word"), REFUSED, ids=_name)
def test_a_control_refuses_a_wrong_state_and_changes_nothing(
    state: Callable[[], Workflow], word: str
) -> None:
    workflow = state()
    actions = workflow.operator_actions.count()
    before = everything(workflow)

    with pytest.raises(InvalidStateError, match=str(workflow.state)):
        CONTROLS[word](workflow)

    assert everything(workflow) == before
    assert workflow.operator_actions.count() == actions


@pytest.mark.parametrize("word", CONTROLS)
def test_the_state_is_looked_at_again_under_the_lock(word: str) -> None:
    stale = ready() if word in ("pause", "skip", "cancel") else paused()
    Workflow.objects.get(pk=stale.pk).cancel()
    before = everything(stale)

    with pytest.raises(InvalidStateError, match="canceled"):
        CONTROLS[word](stale)

    assert everything(stale) == before


@pytest.mark.parametrize("word", CONTROLS)
def test_a_row_that_is_gone_or_was_never_written_is_told(word: str) -> None:
    workflow = ready()
    stale = Workflow.objects.get(pk=workflow.pk)
    Workflow.objects.all().delete()

    with pytest.raises(InvalidStateError, match="gone"):
        CONTROLS[word](stale)
    with pytest.raises(InvalidStateError, match="not started yet"):
        CONTROLS[word](Moved())


@pytest.mark.parametrize("by", ["user", "text", "long text", "none"])
def test_who_did_it_may_be_a_user_a_text_or_nobody(by: str) -> None:
    user = get_user_model().objects.create(username="grace")
    names: dict[str, Any] = {"user": user, "text": "the night shift", "long text": "x" * 400, "none": None}
    workflow = ready()

    workflow.pause(by=names[by], reason="why \N{PARTY POPPER}")

    note = workflow.operator_actions.get()
    assert note.actor == {"user": "grace", "text": "the night shift", "long text": "x" * 255, "none": ""}[by]
    assert note.reason == "why \N{PARTY POPPER}"
    assert clock.utc(note.created_at) <= clock.now("default")


def test_resume_at_notes_the_step_and_a_request_is_noted_as_one() -> None:
    workflow = paused()
    workflow.resume_at("three")
    requested = performing()
    requested.pause()

    note = workflow.operator_actions.order_by("pk").last()
    assert note is not None
    assert note.after["step"] == "three"
    assert requested.operator_actions.get().after["pause_requested"] is True


@pytest.mark.parametrize(
    "verb",
    [
        "start", "get_or_start", "start_many",
        "pause", "resume", "resume_at", "skip", "cancel", "reschedule", "signal", "save", "delete",
    ],
)  # fmt: skip
@pytest.mark.parametrize("make", [ready, paused])
def test_a_template_that_names_a_verb_does_not_call_it(make: Callable[[], Workflow], verb: str) -> None:
    workflow = make()
    before = everything(workflow)
    shown = Template(f"<{{{{ workflow.{verb} }}}}>").render(Context({"workflow": workflow}))
    assert shown == "<>"
    assert everything(workflow) == before
    assert Workflow.objects.count() == 1


# -- pause and resume


def test_a_preserved_execution_keeps_its_time() -> None:
    workflow = ready()
    row = active(workflow)

    workflow.pause().resume()

    kept = active(workflow)
    assert (kept.pk, kept.scheduled_for, kept.held) == (row.pk, row.scheduled_for, False)


def test_a_step_that_raised_is_tried_again_without_its_wait_and_the_rest_follows() -> None:
    workflow = failed()

    workflow.resume()

    assert clock.utc(active(workflow).scheduled_for) <= clock.now("default")
    run(workflow)
    assert history(workflow)[1:] == [TWO_FAILED, ("two", "completed", "success"), THREE_WAITS]


@pytest.mark.parametrize("straight_on", [False, True])
def test_a_pause_while_a_step_performs_lets_it_end_and_holds_the_next(straight_on: bool) -> None:
    class PausedWithin(Free):
        @step
        def one(self) -> None:
            Workflow.objects.get(pk=self.pk).pause(by="somebody")

        @step
        def two(self) -> None:
            trace.append("two")

    workflow = PausedWithin.start()

    run(workflow, straight_on=straight_on)

    assert history(workflow) == [("one", "completed", "success"), TWO_WAITS]
    assert_state(workflow, "paused")
    assert (workflow.next_step_name, workflow.pause_requested_at) == ("two", None)
    assert active(workflow).held
    assert workflow.transitioned_at is not None
    # Not dispatched: neither by a message nor by a scan.
    assert run(workflow) == 0
    workflow.resume()
    run(workflow)
    assert_state(workflow, "finished")


def test_a_pause_while_the_last_step_performs_lets_the_workflow_finish() -> None:
    class PausedAtLast(Free):
        @step
        def last(self) -> None:
            Workflow.objects.get(pk=self.pk).pause()

    workflow = run_next_step(PausedAtLast.start())

    assert_state(workflow, "finished")
    assert workflow.pause_requested_at is None


def test_a_resume_while_the_pause_is_only_asked_for_withdraws_it() -> None:
    class Withdrawn(Free):
        @step
        def one(self) -> None:
            Workflow.objects.get(pk=self.pk).pause().resume()

        @step
        def two(self) -> None:
            pass

    workflow = run_next_step(Withdrawn.start())

    assert_state(workflow, "ready")
    assert not active(workflow).held
    assert [note.action for note in workflow.operator_actions.order_by("pk")] == ["pause", "resume"]


@pytest.mark.parametrize(
    ("word", "state", "rows"),
    [
        ("finish", "finished", [("one", "completed", "success")]),
        ("cancel", "canceled", [("one", "canceled", "canceled")]),
        ("pause", "paused", [("one", "canceled", "workflow_paused")]),
        ("reattempt", "paused", [("one", "completed", "reattempted"), ("one", "scheduled", None)]),
        ("skip", "paused", [("one", "skipped", "skipped"), TWO_WAITS]),
        ("raise", "paused", [("one", "failed", "failed")]),
        ("exit", "paused", [("one", "failed", "recovered"), ("one", "scheduled", None)]),
    ],
)
def test_a_pause_that_was_asked_for_is_never_lost_however_the_step_ends(
    word: str, state: str, rows: list[tuple[str, str, str | None]]
) -> None:
    class EndsAsTold(Free):
        @step
        def one(self) -> None:
            Workflow.objects.get(pk=self.pk).pause()
            if word == "raise":
                raise ValueError("no")
            if word == "exit":
                raise SystemExit(1)
            getattr(self, word)()

        @step
        def two(self) -> None:
            pass

    workflow = EndsAsTold.start()
    run_next_step(workflow, raise_errors=False)

    assert_state(workflow, state)
    assert workflow.pause_requested_at is None
    assert history(workflow) == rows


def test_recovery_of_a_dead_process_honours_a_pause_that_was_asked_for() -> None:
    workflow = pause_requested()
    row = active(workflow)

    recover_one(row.pk, workflow.pk, None, using="default", why="tried", still_dead=lambda: True)

    assert_state(workflow, "paused")
    assert workflow.pause_requested_at is None
    assert history(workflow)[1:] == [("two", "failed", "recovered"), TWO_WAITS]
    assert active(workflow).held


def test_a_resume_starts_the_count_of_crashes_anew() -> None:
    workflow = ready()
    StepExecution.objects.filter(pk=active(workflow).pk).update(crashes=2)

    workflow.pause().resume()
    assert active(workflow).crashes == 0

    StepExecution.objects.filter(pk=active(workflow).pk).update(crashes=2)
    workflow.pause().resume_at("two")
    assert active(workflow).crashes == 0


# -- cancel


def test_a_cancel_while_a_step_performs_holds_at_once_and_the_body_is_recorded_as_canceled() -> None:
    class CanceledWithin(Free):
        @step
        def one(self) -> None:
            mine = Workflow.objects.get(pk=self.pk)
            mine.cancel(by="somebody")
            trace.append((mine.state, mine.current_step_name, mine.is_ongoing))

        @step
        def two(self) -> None:
            trace.append("two")

    workflow = CanceledWithin.start()
    run(workflow, straight_on=True)

    assert trace == [("canceled", None, False)]
    assert history(workflow) == [("one", "canceled", "canceled")]
    assert workflow.executions.get().metadata == {"ended_as": "completed"}


def test_a_body_that_raises_after_its_workflow_was_canceled_keeps_its_error() -> None:
    class CanceledAndRaising(Free):
        @step
        def one(self) -> None:
            Workflow.objects.get(pk=self.pk).cancel()
            raise ValueError("too late")

    workflow = run_next_step(CanceledAndRaising.start(), raise_errors=False)

    row = assert_step(workflow, "one", "canceled", "canceled")
    assert (row.error_message, row.metadata) == ("too late", {"ended_as": "failed"})
    assert_state(workflow, "canceled")


def test_a_cancel_in_flight_frees_the_heros_slot() -> None:
    class Restarted(Free):
        @step
        def one(self) -> None:
            if not trace:
                Workflow.objects.get(pk=self.pk).cancel()
                trace.append(Restarted.start(self.hero).pk)

    order = Order.objects.create()
    first = Restarted.start(order)

    run(first)

    assert_state(first, "canceled")
    assert Restarted.objects.ongoing().get(hero=order).pk == trace[0]


# -- resume_at and skip


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nowhere", "not defined"),
        ("buried", "a removed step"),
        ("__class__", "not defined"),
        ("", "not defined"),
    ],
)
def test_resume_at_refuses_what_cannot_run_and_lists_what_can(name: str, what: str) -> None:
    workflow = paused()
    before = everything(workflow)

    with pytest.raises(StepNotDefinedError) as raised:
        workflow.resume_at(name)

    assert what in str(raised.value)
    assert "one, two, three" in str(raised.value)
    assert everything(workflow) == before


def test_resume_at_goes_on_now_whatever_the_steps_own_wait() -> None:
    workflow = paused()

    workflow.resume_at("two")

    assert clock.utc(active(workflow).scheduled_for) <= clock.now("default")
    assert history(workflow)[1:] == [TWO_CANCELED, TWO_WAITS]


def test_resume_at_takes_a_former_name_and_goes_back_too() -> None:
    workflow = paused()
    workflow.resume_at("zwei")
    assert active(workflow).step_name == "two"

    workflow.pause().resume_at("one")
    run_to_end(workflow)
    assert trace == ["one", "one", "two", "three"]


def test_a_skip_leaves_the_next_step_its_own_wait() -> None:
    workflow = Moved.start()

    workflow.skip()

    row = active(workflow)
    assert row.step_name == "two"
    assert clock.utc(row.scheduled_for) - clock.utc(row.created_at) == timedelta(days=1)
    assert trace == []


@pytest.mark.parametrize("first", ["ready", "paused"])
def test_a_skip_of_the_last_step_finishes(first: str) -> None:
    workflow = Moved.start()
    workflow.skip()
    workflow.skip()
    if first == "paused":
        workflow.pause()
    workflow.skip()

    assert_state(workflow, "finished")
    assert workflow.next_step_name is None
    assert [state for _, state, _ in history(workflow)] == ["skipped", "skipped", "skipped"]


# -- steps that this code does not define


def undefined(state: Callable[[], Workflow]) -> Workflow:
    workflow = state()
    StepExecution.objects.filter(workflow_id=workflow.pk, step_name="two").update(step_name="from_newer_code")
    Workflow.objects.filter(pk=workflow.pk).update(next_step_name="from_newer_code")
    workflow.refresh_from_db()
    return workflow


@pytest.mark.parametrize(
    ("state", "word"),
    [(paused, "resume"), (failed, "resume"), (ready, "skip"), (paused, "skip"), (failed, "skip")],
)
def test_an_undefined_step_is_refused_with_the_ways_out_and_changes_nothing(
    state: Callable[[], Workflow], word: str
) -> None:
    workflow = undefined(state)
    before = everything(workflow)

    with pytest.raises(StepNotDefinedError) as raised:
        CONTROLS[word](workflow)

    for part in (
        "from_newer_code",
        "one, two, three",
        "resume_at()",
        "cancel()",
        "from_newer_code = removed_step()",
    ):
        assert part in str(raised.value)
    assert everything(workflow) == before


@pytest.mark.parametrize(("state", "word"), [(paused, "resume_at"), (failed, "resume_at"), (ready, "cancel")])
def test_the_ways_out_of_an_undefined_step_lead_out(state: Callable[[], Workflow], word: str) -> None:
    workflow = undefined(state)

    CONTROLS[word](workflow)

    if word == "resume_at":
        run_to_end(workflow)
        assert_state(workflow, "finished")
    else:
        assert_state(workflow, "canceled")


@pytest.mark.parametrize(
    ("word", "works"), [("pause", True), ("cancel", True), ("skip", False), ("resume", False)]
)
def test_a_row_of_an_unknown_class_can_be_paused_and_canceled(word: str, works: bool) -> None:
    workflow = paused() if word == "resume" else ready()
    Workflow.objects.filter(pk=workflow.pk).update(type="testapp.FromNewerCode")
    stored = Workflow.objects.get(pk=workflow.pk)

    if works:
        CONTROLS[word](stored)
        assert stored.state in ("paused", "canceled")
    else:
        with pytest.raises(StepNotDefinedError, match="declares no runnable step"):
            CONTROLS[word](stored)


def test_next_step_name_is_always_the_active_step_or_what_resume_would_create() -> None:
    workflow = Moved.start()
    for act in ("pause", "resume", "skip", "pause", "skip", "pause", "resume"):
        CONTROLS[act](workflow)
        assert workflow.next_step_name == active(workflow).step_name
    run_to_end(workflow)
    assert workflow.next_step_name is None
    broken = failed()
    assert broken.next_step_name == "two"
    broken.resume()
    assert active(broken).step_name == "two"
