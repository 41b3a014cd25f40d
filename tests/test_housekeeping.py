"""Recovery, dispatching again, and the clean-up."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, connections, transaction
from django.db.models.signals import post_delete
from django.test.utils import CaptureQueriesContext

from geneva_drive import clock, housekeeping, step
from geneva_drive.dispatchers import Dispatcher
from geneva_drive.execution import recovery
from geneva_drive.execution.finalizing import finalize
from geneva_drive.execution.performing import Ending, Performance, row_of
from geneva_drive.execution.runner import Runner
from geneva_drive.housekeeping import Counts, clean_up, recover, redispatch
from geneva_drive.models import OperatorAction, Process, StepExecution, Workflow
from tests.worker.support import Base, active, history

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


class KeptTwo(Base):
    @step
    def one(self) -> None:
        pass

    @step
    def two(self) -> None:
        pass


class KeptPausing(Base):
    @step(on_crash="pause")
    def one(self) -> None:
        pass


def process(*, beat: timedelta = timedelta(0)) -> Process:
    """A process whose last beat was so long ago."""
    moment = clock.local(clock.now() - beat)
    return Process.objects.create(
        hostname="here", pid=1, kind="worker", started_at=moment, heartbeat_at=moment
    )


def in_hand(
    workflow: Workflow, owner: Process | None, *, since: timedelta = DAY, **columns: Any
) -> Performance:
    """Let ``owner`` be in the middle of the workflow's scheduled step, as it would be itself."""
    token = uuid4()
    row = active(workflow)
    StepExecution.objects.filter(pk=row.pk).update(
        state="in_progress",
        process=owner,
        attempt_token=token,
        started_at=clock.local(clock.now() - since),
        **columns,
    )
    Workflow.objects.filter(pk=workflow.pk).update(state="performing", current_step_name=row.step_name)
    workflow.refresh_from_db()
    definition = type(workflow).steps.get(row.step_name)
    return Performance(workflow, active(workflow), definition, token, row=row_of(workflow))


# -- recovery


def test_a_dead_process_is_recovered_and_its_row_goes() -> None:
    workflow, dead = KeptTwo.start(), process(beat=DAY)
    in_hand(workflow, dead)

    counts = recover("default")

    assert (counts.recovered, counts.processes) == (1, 1)
    assert history(workflow) == [("one", "failed", "recovered"), ("one", "scheduled", None)]
    ended = workflow.executions.get(outcome="recovered")
    assert ended.finished_at is not None
    assert str(dead.pk) in (ended.error_message or "")
    assert active(workflow).crashes == 1
    workflow.refresh_from_db()
    assert (workflow.state, workflow.next_step_name) == ("ready", "one")
    assert not Process.objects.exists()
    assert recover("default") == Counts()


def test_a_live_process_is_left_alone_however_long_its_step_takes() -> None:
    workflow, alive = KeptTwo.start(), process()
    in_hand(workflow, alive, since=100 * DAY)
    assert recover("default") == Counts()
    assert active(workflow).state == "in_progress"
    assert Process.objects.count() == 1


def test_a_process_whose_row_is_gone_is_dead() -> None:
    workflow, gone = KeptTwo.start(), process()
    in_hand(workflow, gone)
    Process.objects.all()._raw_delete("default")
    assert recover("default").recovered == 1


def test_a_step_without_a_process_is_stuck_after_the_threshold(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"STUCK_AFTER": timedelta(hours=1)}
    fresh, stuck = KeptTwo.start(), KeptTwo.start()
    in_hand(fresh, None, since=timedelta(minutes=59))
    in_hand(stuck, None, since=timedelta(minutes=61))
    assert recover("default").recovered == 1
    assert active(fresh).state == "in_progress"
    assert active(stuck).state == "scheduled"


def test_a_dead_process_with_nothing_in_hand_just_goes() -> None:
    process(beat=DAY)
    alive = process()
    assert recover("default") == Counts(processes=1)
    assert list(Process.objects.all()) == [alive]


def test_the_last_allowed_crash_pauses(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"MAX_CRASHES": 3}
    workflow = KeptTwo.start()
    for crashes in (1, 2):
        in_hand(workflow, process(beat=DAY))
        recover("default")
        assert active(workflow).crashes == crashes
    in_hand(workflow, process(beat=DAY))
    recover("default")
    workflow.refresh_from_db()
    assert (workflow.state, workflow.next_step_name) == ("paused", "one")
    assert [state for _, state, _ in history(workflow)] == ["failed"] * 3


def test_a_crash_between_a_hand_over_and_the_body_does_not_count() -> None:
    workflow = KeptTwo.start()
    in_hand(workflow, process(beat=DAY), handed_over=True, crashes=2)
    recover("default")
    assert active(workflow).crashes == 2
    workflow.refresh_from_db()
    assert workflow.state == "ready"


def test_a_success_resets_the_count() -> None:
    workflow = KeptTwo.start()
    performance = in_hand(workflow, process(), crashes=2)
    finalize(performance, Ending(), Runner(straight_on=False))
    assert active(workflow).crashes == 0


@pytest.mark.parametrize(
    ("action", "state"), [("reattempt", "ready"), ("pause", "paused"), ("cancel", "canceled")]
)
def test_the_setting_says_what_recovery_does(settings: Any, action: str, state: str) -> None:
    settings.GENEVA_DRIVE = {"RECOVERY_ACTION": action}
    workflow = KeptTwo.start()
    in_hand(workflow, process(beat=DAY))
    recover("default")
    workflow.refresh_from_db()
    assert workflow.state == state


def test_the_step_knows_better_than_the_setting(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"RECOVERY_ACTION": "cancel"}
    workflow = KeptPausing.start()
    in_hand(workflow, process(beat=DAY))
    recover("default")
    workflow.refresh_from_db()
    assert workflow.state == "paused"


def test_a_pause_that_was_asked_for_is_honoured() -> None:
    workflow = KeptTwo.start()
    in_hand(workflow, process(beat=DAY))
    workflow.pause()
    recover("default")
    workflow.refresh_from_db()
    assert (workflow.state, workflow.pause_requested_at) == ("paused", None)
    assert (active(workflow).state, active(workflow).held) == ("scheduled", True)


def test_what_was_canceled_meanwhile_is_closed_and_nothing_follows() -> None:
    workflow = KeptTwo.start()
    in_hand(workflow, process(beat=DAY))
    workflow.cancel()
    assert recover("default").recovered == 1
    assert history(workflow) == [("one", "canceled", "canceled")]
    assert workflow.executions.get().finished_at is not None
    workflow.refresh_from_db()
    assert workflow.state == "canceled"


@pytest.mark.parametrize("unknown", ["class", "step"])
def test_code_that_does_not_know_it_waits_for_the_grace_and_then_pauses(settings: Any, unknown: str) -> None:
    settings.GENEVA_DRIVE = {"UNDEFINED_STEP_GRACE": timedelta(minutes=5)}
    workflow = KeptTwo.start()
    in_hand(workflow, process(beat=DAY))
    if unknown == "class":
        Workflow.objects.filter(pk=workflow.pk).update(type="workshop.Gone")
    else:
        StepExecution.objects.filter(workflow_id=workflow.pk).update(step_name="gone")

    assert recover("default") == Counts()
    row = StepExecution.objects.get(workflow_id=workflow.pk)
    assert row.state == "in_progress"
    assert row.deferred_since is not None
    assert recover("default") == Counts()

    StepExecution.objects.filter(pk=row.pk).update(
        deferred_since=clock.local(clock.now() - timedelta(minutes=6))
    )
    assert recover("default").recovered == 1
    row.refresh_from_db()
    assert (row.state, row.outcome) == ("failed", "recovered")
    assert Workflow.objects.get(pk=workflow.pk).state == "paused"


def test_code_that_knows_it_does_not_wait_for_the_grace() -> None:
    """Given that old code has met it, new code recovers it at once."""
    workflow = KeptTwo.start()
    in_hand(workflow, process(beat=DAY), deferred_since=clock.local(clock.now()))
    assert recover("default").recovered == 1
    assert active(workflow).step_name == "one"


def test_a_list_that_has_grown_old_does_no_harm() -> None:
    """Given a row that was begun anew, or a process that beats again, since the list was made: untouched."""
    workflow, owner = KeptTwo.start(), process(beat=DAY)
    performance = in_hand(workflow, owner)
    again, revived = KeptTwo.start(), process(beat=DAY)
    in_hand(again, revived)
    listed = [
        (row.pk, row.workflow_id, token)
        for row, token in ((performance.execution, uuid4()), (active(again), active(again).attempt_token))
    ]
    Process.objects.filter(pk=revived.pk).update(heartbeat_at=clock.local(clock.now()))
    for pk, workflow_id, token in listed:
        assert not housekeeping._recover(
            pk,
            workflow_id,
            token,
            using="default",
            why="an old list",
            still_dead=lambda: housekeeping._is_dead("default", revived.pk),
        )
    assert {active(workflow).state, active(again).state} == {"in_progress"}


def test_a_late_finisher_is_fenced() -> None:
    workflow = KeptTwo.start()
    performance = in_hand(workflow, process(beat=DAY))
    recover("default")
    before = history(workflow)
    assert finalize(performance, Ending(), Runner()) is None
    assert history(workflow) == before


def test_one_row_that_cannot_be_recovered_keeps_no_other_from_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a fault of our own in the middle of recovering one, the others are recovered."""
    broken, good = KeptTwo.start(), KeptTwo.start()
    dead = process(beat=DAY)
    in_hand(broken, dead, since=2 * DAY)
    in_hand(good, dead)
    apply = getattr(recovery, "apply_decision")  # noqa: B009 - not exported, and replaced here

    def fails(workflow: Workflow, *rest: Any, **named: Any) -> Any:
        if workflow.pk == broken.pk:
            raise RuntimeError("nobody thought of this")
        return apply(workflow, *rest, **named)

    monkeypatch.setattr(recovery, "apply_decision", fails)
    assert recover("default").recovered == 1
    assert active(good).state == "scheduled"
    assert active(broken).state == "in_progress"
    assert any("could not be recovered" in record.getMessage() for record in caplog.records)


@pytest.mark.django_db(transaction=True)
def test_two_housekeepers_and_the_late_finisher_at_once() -> None:
    """Given all three at the same rows, each row gets one final state and one successor."""
    dead = process(beat=DAY)
    performances = [in_hand(KeptTwo.start(), dead) for _ in range(12)]
    barrier = threading.Barrier(3)
    recovered: list[int] = []

    def keep_house() -> None:
        barrier.wait()
        recovered.append(recover("default").recovered)

    def finish() -> None:
        barrier.wait()
        for performance in performances:
            finalize(performance, Ending(), Runner(straight_on=False))

    _at_once(keep_house, keep_house, finish)

    for performance in performances:
        rows = history(performance.workflow)
        assert rows in (
            [("one", "failed", "recovered"), ("one", "scheduled", None)],
            [("one", "completed", "success"), ("two", "scheduled", None)],
        )
    assert sum(recovered) == StepExecution.objects.filter(outcome="recovered").count()
    assert not Process.objects.exists()


def _at_once(*acts: Any) -> None:
    failed: list[BaseException] = []

    def guarded(act: Any) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=guarded, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failed == []
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("count", [1, 30])
def test_fresh_rows_in_progress_cost_recovery_nothing(count: int) -> None:
    """Given many rows of live processes, the number of queries depends on the processes alone."""
    alive = process()
    for _ in range(count):
        in_hand(KeptTwo.start(), alive, since=timedelta(0))
    with CaptureQueriesContext(connection) as captured:
        recover("default")
    assert len(captured) <= 7


# -- dispatching again


class Remembering(Dispatcher):
    """Notes what it was asked to carry."""

    carried: list[Any] = []

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        self.carried.append(execution_id)
        return "job"


@pytest.fixture
def carried(settings: Any) -> list[Any]:
    settings.GENEVA_DRIVE = {
        "DISPATCHER": f"{__name__}.Remembering",
        "OVERDUE_AFTER": timedelta(minutes=15),
    }
    Remembering.carried.clear()
    return Remembering.carried


def _overdue(workflow: Workflow, *, by: timedelta, sent: timedelta | None) -> StepExecution:
    row = active(workflow)
    StepExecution.objects.filter(pk=row.pk).update(
        scheduled_for=clock.local(clock.now() - by),
        dispatched_at=None if sent is None else clock.local(clock.now() - sent),
    )
    return row


def test_what_is_overdue_is_dispatched_again_as_it_is(carried: list[Any]) -> None:
    minutes = timedelta(minutes=1)
    never = _overdue(KeptTwo.start(), by=16 * minutes, sent=None)
    lost = _overdue(KeptTwo.start(), by=60 * minutes, sent=60 * minutes)
    _overdue(KeptTwo.start(), by=60 * minutes, sent=14 * minutes)
    _overdue(KeptTwo.start(), by=14 * minutes, sent=None)
    held = KeptTwo.start()
    held.pause()
    _overdue(held, by=60 * minutes, sent=None)
    carried.clear()

    assert redispatch("default").redispatched == 2
    assert carried == [lost.pk, never.pk]
    # Not again until as much time has passed again, and the same rows: no attempt was used.
    assert redispatch("default").redispatched == 0
    assert StepExecution.objects.count() == 5
    lost.refresh_from_db()
    assert (lost.state, lost.crashes, lost.job_id) == ("scheduled", 0, "job")


def test_where_the_tables_are_the_queue_nothing_is_dispatched_again() -> None:
    _overdue(KeptTwo.start(), by=DAY, sent=None)
    assert redispatch("default").redispatched == 0


# -- clean-up


def ended(count: int, *, ago: timedelta, state: str = "finished") -> list[Workflow]:
    """Workflows with two executions each that ended so long ago."""
    workflows: list[Workflow] = [KeptTwo.start() for _ in range(count)]
    keys = [each.pk for each in workflows]
    for workflow in workflows:
        first = active(workflow)
        first.pk = None
        StepExecution.objects.filter(workflow=workflow).update(state="completed", outcome="success")
        first._state.adding = True
        first.state, first.outcome = "completed", "success"
        first.save()
    Workflow.objects.filter(pk__in=keys).update(
        state=state, next_step_name=None, transitioned_at=clock.local(clock.now() - ago)
    )
    return workflows


def test_what_ended_before_the_retention_goes_with_its_children(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"RETENTION": 30 * DAY}
    old = [*ended(2, ago=31 * DAY), *ended(1, ago=40 * DAY, state="canceled")]
    young = ended(1, ago=29 * DAY)
    ongoing = KeptTwo.start()
    ongoing.pause(by="somebody")
    Workflow.objects.filter(pk=ongoing.pk).update(transitioned_at=clock.local(clock.now() - 100 * DAY))
    OperatorAction.objects.create(workflow=old[0], action="cancel", created_at=clock.local(clock.now()))

    counts = clean_up("default")

    assert (counts.workflows, counts.executions, counts.operator_actions) == (3, 6, 1)
    assert set(Workflow.objects.values_list("pk", flat=True)) == {young[0].pk, ongoing.pk}
    assert StepExecution.objects.count() == 3
    assert clean_up("default") == Counts()


def test_none_keeps_everything(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"RETENTION": None}
    ended(1, ago=1000 * DAY)
    assert clean_up("default") == Counts()
    assert clean_up("default", retention=DAY).workflows == 1


def test_one_with_an_execution_in_progress_stays() -> None:
    """Given a canceled workflow whose old body still runs, its end finds its rows."""
    running, _ = ended(2, ago=100 * DAY, state="canceled")
    StepExecution.objects.filter(pk=running.executions.all()[0].pk).update(state="in_progress")
    assert clean_up("default").workflows == 1
    assert list(Workflow.objects.all()) == [running]
    assert running.executions.count() == 2


def test_batches_are_bounded_and_it_can_be_stopped_and_begun_again(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"CLEANUP_BATCH_SIZE": 3}
    # All at the very same moment: batches are told apart by key.
    ended(8, ago=50 * DAY)
    seen: list[int] = []
    counts = clean_up(
        "default", progress=lambda counts: seen.append(counts.workflows), stop=lambda: len(seen) == 2
    )
    assert (seen, counts.workflows) == ([3, 6], 6)
    assert clean_up("default").workflows == 2


def test_rows_that_cannot_go_are_passed_over_once(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"CLEANUP_BATCH_SIZE": 2}
    workflows = ended(7, ago=50 * DAY)
    stays = workflows[:4]
    StepExecution.objects.filter(workflow__in=[each.pk for each in stays], pk__in=_firsts(stays)).update(
        state="in_progress"
    )
    batches: list[int] = []
    assert clean_up("default", progress=lambda counts: batches.append(counts.workflows)).workflows == 3
    assert len(batches) == 4


def _firsts(workflows: list[Workflow]) -> list[Any]:
    return [each.executions.order_by("pk")[0].pk for each in workflows]


def test_delete_signals_are_sent_for_the_base_class() -> None:
    (workflow,) = ended(1, ago=50 * DAY)
    told: list[tuple[Any, str]] = []

    def receive(sender: type[Workflow], instance: Workflow, **_: Any) -> None:
        told.append((instance.pk, instance.type))

    post_delete.connect(receive, sender=Workflow)
    try:
        clean_up("default")
    finally:
        post_delete.disconnect(receive, sender=Workflow)
    assert told == [(workflow.pk, "workshop.KeptTwo")]


def test_the_whole_pass_tells_what_it_did() -> None:
    ended(1, ago=50 * DAY)
    in_hand(KeptTwo.start(), process(beat=DAY))
    counts = housekeeping.housekeep()
    told = {name: count for name, count in counts.as_dict().items() if count}
    assert told == {"recovered": 1, "processes": 1, "workflows": 1, "executions": 2}


@pytest.mark.only_on("postgresql", "mysql", "mariadb", reason="SQLite locks all rows at once")
@pytest.mark.django_db(transaction=True)
def test_a_row_that_somebody_has_locked_is_left_for_the_next_pass() -> None:
    locked, free = ended(2, ago=50 * DAY)
    with transaction.atomic():
        Workflow.objects.select_for_update().get(pk=locked.pk)
        _at_once(lambda: clean_up("default"))
    assert list(Workflow.objects.all()) == [locked]
    assert locked.executions.count() == 2
    assert clean_up("default").workflows == 1
    assert not Workflow.objects.filter(pk=free.pk).exists()
