"""Claims: a claimed execution is in progress, and no other process gets it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from geneva_drive import clock, step
from geneva_drive.execution import executor, prepare, recovery
from geneva_drive.execution.perform import ClaimedExecution
from geneva_drive.execution.runner import Runner
from geneva_drive.lifecycle.unit_of_work import UnitOfWork
from geneva_drive.models import StepExecution, Workflow
from geneva_drive.worker import claiming
from geneva_drive.worker.claiming import CandidateCache, is_anything_due
from tests.worker.support import TRACE, Base, active

T = TypeVar("T")

pytestmark = pytest.mark.django_db


class _Named(Runner):
    """Claims for a process."""

    def __init__(self, process_id: UUID | None = None) -> None:
        super().__init__()
        self.process_id = process_id or uuid4()


def claim(
    limit: int = 1, *, queues: list[str] | None = None, runner: Runner | None = None
) -> list[ClaimedExecution]:
    return list(
        claiming.claim("default", claiming.CandidateCache("default", queues), limit, runner or _Named())
    )


class ClaimedPlain(Base):
    @step
    def only(self) -> None:
        TRACE.append(self.pk)


class ClaimedAsking(Base):
    """Takes the portable path, since it has a condition."""

    @step(skip_if=lambda _workflow: False)
    def only(self) -> None:
        TRACE.append(self.pk)


@pytest.fixture(params=[ClaimedPlain, ClaimedAsking])
def kind(request: pytest.FixtureRequest) -> type[Base]:
    """A class that takes the fast path, and one that takes the portable path."""
    return request.param  # type: ignore[no-any-return]


def test_a_claimed_execution_is_in_progress_and_names_its_process(kind: type[Base]) -> None:
    workflow = kind.start()
    runner = _Named()

    (claimed,) = claim(runner=runner)

    row = active(workflow)
    assert row.state == "in_progress"
    assert row.process_id == runner.process_id
    assert row.attempt_token == claimed.token
    assert row.started_at is not None
    assert not row.handed_off
    workflow.refresh_from_db()
    assert (workflow.state, workflow.current_step_name) == ("performing", "only")
    assert claim() == []


def test_a_claim_respects_its_limit(kind: type[Base]) -> None:
    for _ in range(5):
        kind.start()
    assert len(claim(3)) == 3
    assert StepExecution.objects.scheduled().count() == 2
    assert len(claim(3)) == 2


def test_executions_on_hold_or_not_due_are_not_claimed(kind: type[Base]) -> None:
    kind.start().pause()
    kind.start(at=clock.now() + timedelta(hours=1))
    assert claim(5) == []
    assert not is_anything_due("default", None)


def test_lower_priorities_first_then_the_oldest(kind: type[Base]) -> None:
    now = clock.now()
    late = kind.start(at=now - timedelta(minutes=1))
    early = kind.start(at=now - timedelta(minutes=2))
    urgent = kind.start(at=now, job_options={"priority": -3})
    idle = kind.start(at=now - timedelta(days=1), job_options={"priority": 10})
    assert [each.workflow.pk for each in claim(9)] == [urgent.pk, early.pk, late.pk, idle.pk]


def test_the_portable_path_keeps_its_turn_among_the_fast() -> None:
    now = clock.now()
    first = ClaimedAsking.start(at=now - timedelta(minutes=2))
    ClaimedPlain.start(at=now - timedelta(minutes=1))
    (claimed,) = claim(1)
    assert claimed.workflow.pk == first.pk


def test_queues_of_one_priority_take_turns() -> None:
    """Given a queue that is always full, another one of its priority is served too."""
    for number in range(60):
        ClaimedPlain.start(job_options={"queue": "a"}, at=clock.now() - timedelta(minutes=number))
    other = ClaimedPlain.start(job_options={"queue": "b"})
    order = [claim(1)[0].workflow.pk for _ in range(60)]
    assert other.pk in order


def test_only_the_workers_queues_are_claimed(kind: type[Base]) -> None:
    here = kind.start(job_options={"queue": "here"})
    kind.start(job_options={"queue": "there"})
    assert [each.workflow.pk for each in claim(5, queues=["here", "nowhere"])] == [here.pk]
    assert not is_anything_due("default", ["here", "nowhere"])
    assert is_anything_due("default", None)


def test_a_new_queue_is_found_despite_the_cache() -> None:
    """Given that the worker knows of one queue, what woke it for another is found at once."""
    known = CandidateCache("default", None)
    ClaimedPlain.start(job_options={"queue": "a"})
    assert len(list(claiming.claim("default", known, 1, _Named()))) == 1
    new = ClaimedPlain.start(job_options={"queue": "b"})
    assert [each.workflow.pk for each in claiming.claim("default", known, 1, _Named())] == [new.pk]


def test_cached_candidates_are_claimed_without_a_scan(kind: type[Base]) -> None:
    """Given several rows due, the first claim looks, and those that follow at once begin the next ones."""
    workflows = [kind.start(at=clock.now() - timedelta(minutes=5 - number)) for number in range(4)]
    candidates = CandidateCache("default", None)

    found: list[Any] = []
    looks = []
    for _ in workflows:
        with CaptureQueriesContext(connection) as queries:
            found += claiming.claim("default", candidates, 1, _Named())
        # The look is the one that asks for workflows and executions together.
        looks.append(sum(" JOIN " in query["sql"] for query in queries))

    assert [each.workflow.pk for each in found] == [each.pk for each in workflows]
    assert looks[0] > 0
    assert looks[1:] == [0, 0, 0]


def test_cached_candidates_that_are_no_longer_due_are_skipped(kind: type[Base]) -> None:
    first, paused, later, canceled, last = (
        kind.start(at=clock.now() - timedelta(minutes=5 - number)) for number in range(5)
    )
    candidates = CandidateCache("default", None)
    (claimed,) = claiming.claim("default", candidates, 1, _Named())
    assert claimed.workflow.pk == first.pk
    paused.pause()
    later.reschedule(clock.now() + timedelta(days=1))
    canceled.cancel()

    found = [each.workflow.pk for each in claiming.claim("default", candidates, 5, _Named())]

    assert found == [last.pk]
    assert {active(each).state for each in (paused, later)} == {"scheduled"}


def test_workers_with_the_same_candidates_share_them(
    kind: type[Base], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given two workers with the same cached rows, each row is claimed once, and none is left."""
    monkeypatch.setattr(claiming, "_PAGE", 3)
    workflows = {kind.start().pk for _ in range(12)}
    caches = [CandidateCache("default", None), CandidateCache("default", None)]

    found: list[Any] = []
    for number in (0, 1, 1, 0, 0, 1, 0):
        found += claiming.claim("default", caches[number], 1, _Named())
    found += claiming.claim("default", caches[0], 20, _Named())

    assert sorted(each.workflow.pk for each in found) == sorted(workflows)


def test_pages_with_equal_times_miss_and_repeat_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given many rows due at the very same moment, none is left out and none comes twice."""
    monkeypatch.setattr(claiming, "_PAGE", 2)
    moment = clock.now() - timedelta(minutes=1)
    expected = {ClaimedPlain.start(at=moment).pk for _ in range(11)}
    expected |= {ClaimedPlain.start(at=moment + timedelta(seconds=number % 3)).pk for number in range(9)}

    candidates = [one for page in claiming._pages("default", "default", 0, 1) for one in page]

    assert len(candidates) == 20
    assert {one.workflow_id for one in candidates} == expected


def test_one_undeclared_class_does_not_stop_the_others() -> None:
    workflows = [ClaimedPlain.start(at=clock.now() - timedelta(minutes=5 - number)) for number in range(5)]
    Workflow.objects.filter(pk=workflows[1].pk).update(type="workshop.Gone")

    for claimed in claim(5):
        executor.run(claimed, Runner())

    assert [workflows[number].pk for number in (0, 2, 3, 4)] == TRACE
    deferred = active(workflows[1])
    assert deferred.state == "scheduled"
    assert clock.utc(deferred.scheduled_for) > clock.now()
    assert deferred.deferred_since is not None
    assert deferred.error_class == "geneva_drive.exceptions.WorkflowNotDefinedError"


def test_a_row_that_cannot_be_prepared_is_deferred_and_stops_nothing(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a fault of our own in the middle of preparing, the row leaves the head of the line, then pauses."""
    broken = ClaimedAsking.start(at=clock.now() - timedelta(hours=1))
    good = ClaimedAsking.start()
    check = prepare.check

    def fails(unit: UnitOfWork) -> Any:
        if unit.workflow.pk == broken.pk:
            raise RuntimeError("nobody thought of this")
        return check(unit)

    monkeypatch.setattr(prepare, "check", fails)
    assert [each.workflow.pk for each in claim(2)] == [good.pk]
    row = active(broken)
    assert row.state == "scheduled"
    assert clock.utc(row.scheduled_for) > clock.now()
    assert row.error_class == "builtins.RuntimeError"

    settings.GENEVA_DRIVE = {"UNDEFINED_STEP_GRACE": timedelta(0)}
    StepExecution.objects.filter(pk=row.pk).update(scheduled_for=clock.local(clock.now()))
    assert claim(2) == []
    broken.refresh_from_db()
    assert broken.state == "paused"


def test_a_released_execution_counts_as_no_crash(kind: type[Base]) -> None:
    workflow = kind.start()
    (claimed,) = claim()

    assert recovery.release(claimed)

    row = active(workflow)
    assert (row.state, row.crashes, row.process_id, row.attempt_token) == ("scheduled", 0, None, None)
    assert row.started_at is None
    workflow.refresh_from_db()
    assert (workflow.state, workflow.current_step_name) == ("ready", None)
    (again,) = claim()
    assert again.execution.pk == row.pk


def test_a_release_is_fenced_by_the_token(kind: type[Base]) -> None:
    """Given that another process has started it meanwhile, nothing is released."""
    workflow = kind.start()
    (claimed,) = claim()
    StepExecution.objects.filter(workflow=workflow).update(attempt_token=uuid4())
    assert not recovery.release(claimed)
    assert active(workflow).state == "in_progress"


def test_a_release_honours_a_pause_and_a_cancel() -> None:
    paused, canceled = ClaimedPlain.start(), ClaimedPlain.start()
    performances = {each.workflow.pk: each for each in claim(2)}
    paused.pause()
    canceled.cancel()
    for claimed in performances.values():
        recovery.release(claimed)
    paused.refresh_from_db()
    assert paused.state == "paused"
    assert paused.pause_requested_at is None
    assert (active(paused).state, active(paused).on_hold) == ("scheduled", True)
    assert [row.state for row in canceled.executions.all()] == ["canceled"]


# -- beside others


def elsewhere(act: Callable[[], T]) -> T:
    """Do it in a thread of its own, on a connection of its own."""
    result: list[T] = []

    def work() -> None:
        try:
            result.append(act())
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert result, "it failed or hangs"
    return result[0]


@pytest.fixture(params=["as it is", "without SKIP LOCKED"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Also as on a database whose server or driver lacks SKIP LOCKED."""
    if request.param == "without SKIP LOCKED":
        monkeypatch.setattr(type(connection.features), "has_select_for_update_skip_locked", False)
    return request.param  # type: ignore[no-any-return]


@pytest.mark.django_db(transaction=True)
def test_eight_concurrent_claims_do_not_overlap(kind: type[Base], way: str) -> None:
    expected = {kind.start().pk for _ in range(40)}
    barrier = threading.Barrier(8)
    found: list[list[Any]] = []

    def work() -> None:
        barrier.wait()
        mine: list[Any] = []
        try:
            while claimed := claim(2):
                mine += [each.workflow.pk for each in claimed]
        finally:
            found.append(mine)
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    everything = [pk for mine in found for pk in mine]
    # What one of them passed over since another had it locked was taken by that one.
    assert sorted(everything) == sorted(expected)


@pytest.mark.only_on("postgresql", "mysql", "mariadb", reason="SQLite locks all rows at once")
@pytest.mark.django_db(transaction=True)
def test_a_locked_workflow_is_skipped(kind: type[Base]) -> None:
    locked = kind.start(at=clock.now() - timedelta(hours=1))
    free = kind.start()
    with transaction.atomic():
        Workflow.objects.select_for_update().get(pk=locked.pk)
        assert elsewhere(lambda: [each.workflow.pk for each in claim(5)]) == [free.pk]
        assert elsewhere(lambda: is_anything_due("default", None))
    assert [each.workflow.pk for each in claim(5)] == [locked.pk]
