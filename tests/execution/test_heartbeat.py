"""The row of a process, its beats, and the check of its executions."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction

from geneva_drive import clock
from geneva_drive.execution import heartbeat as module
from geneva_drive.execution.heartbeat import Heartbeat, ensure, stop_all
from geneva_drive.housekeeping import recover
from geneva_drive.models import Process
from tests.acceptance.processes import until
from tests.testapp.workflows import Heroless

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def heartbeat() -> Iterator[Heartbeat]:
    one = Heartbeat("default", "worker")
    one.start()
    yield one
    one.stop()


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    yield
    stop_all()


def test_it_creates_its_row_at_the_start_and_deletes_it_at_the_end(heartbeat: Heartbeat) -> None:
    row = Process.objects.get()
    assert row.pk == heartbeat.process_id
    assert (row.kind, row.pid) == ("worker", os.getpid())
    heartbeat.stop()
    assert not Process.objects.exists()


def test_it_beats_automatically(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"LEASE": timedelta(seconds=0.6)}
    one = Heartbeat("default", "worker")
    one.start()
    try:
        began = Process.objects.get().heartbeat_at
        until(lambda: Process.objects.get().heartbeat_at > began, "it has beaten")
        assert one.is_alive()
    finally:
        one.stop()


def test_between_beats_its_thread_holds_no_connection(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"LEASE": timedelta(seconds=0.3)}
    seen: list[Any] = []

    class Watched(Heartbeat):
        def _close(self) -> None:
            super()._close()
            seen.append(connections[self.using].connection)

    one = Watched("default", "worker")
    one.start()
    try:
        until(lambda: len(seen) > 1, "it has beaten")
    finally:
        one.stop()
    assert set(seen) == {None}


def test_a_beat_without_a_row_takes_a_new_identity(heartbeat: Heartbeat) -> None:
    before = heartbeat.process_id
    Process.objects.all()._raw_delete("default")

    heartbeat.beat()

    assert heartbeat.process_id != before
    assert [row.pk for row in Process.objects.all()] == [heartbeat.process_id]
    assert heartbeat.is_alive()


def test_each_start_has_its_own_identity() -> None:
    assert Heartbeat("default", "worker").process_id != Heartbeat("default", "worker").process_id


def test_it_is_alive_only_while_its_last_beat_is_younger_than_the_lease(
    heartbeat: Heartbeat, settings: Any
) -> None:
    assert not Heartbeat("default", "worker").is_alive()
    assert heartbeat.is_alive()
    settings.GENEVA_DRIVE = {"LEASE": timedelta(0)}
    assert not heartbeat.is_alive()


def test_a_beat_is_timed_from_when_it_was_sent(heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a beat takes longer than the lease to arrive, the process does not count as alive."""
    began = clock.ticks()
    now = heartbeat._now

    def slowly() -> Any:
        monkeypatch.setattr(clock, "ticks", lambda: began + 3600)
        return now()

    monkeypatch.setattr(heartbeat, "_now", slowly)
    heartbeat.beat()
    assert not heartbeat.is_alive()


def test_after_it_is_marked_dead_it_can_be_recovered_at_once_and_stops_beating(heartbeat: Heartbeat) -> None:
    heartbeat.mark_dead()
    heartbeat.beat()
    assert recover("default").processes == 1


def test_a_failing_beat_is_followed_by_others(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.GENEVA_DRIVE = {"LEASE": timedelta(seconds=0.3)}
    fails = [True]

    class Failing(Heartbeat):
        def beat(self) -> None:
            if fails:
                fails.pop()
                raise RuntimeError("no luck")
            super().beat()

    one = Failing("default", "worker")
    one.start()
    try:
        began = Process.objects.get().heartbeat_at
        until(lambda: Process.objects.get().heartbeat_at > began, "it has beaten")
    finally:
        one.stop()
    assert any("heartbeat" in record.getMessage() for record in caplog.records)


def test_checking_its_rows_does_not_delay_a_beat(settings: Any) -> None:
    """While the check waits for a lock, the process keeps beating and is not presumed dead."""
    settings.GENEVA_DRIVE = {"LEASE": timedelta(seconds=0.6)}
    waits, began = threading.Event(), threading.Event()

    def answer(_: Heartbeat) -> None:
        began.set()
        waits.wait(60)

    one = Heartbeat("default", "worker", after_beat=answer)
    one.start()
    try:
        assert began.wait(60)
        seen = Process.objects.get().heartbeat_at
        until(lambda: Process.objects.get().heartbeat_at > seen, "it has beaten meanwhile")
    finally:
        waits.set()
        one.stop()


def test_processes_that_stop_at_the_same_time_all_delete_their_rows(caplog: pytest.LogCaptureFixture) -> None:
    """The children of a pool end at the same time and do not block each other."""
    crowd = 8
    together = threading.Barrier(crowd)

    def come_and_go() -> None:
        try:
            for _ in range(5):
                one = Heartbeat("default", "celery")
                one.start()
                together.wait(60)
                one.stop()
                together.wait(60)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=come_and_go) for _ in range(crowd)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not Process.objects.exists()
    assert not [record for record in caplog.records if "stays" in record.getMessage()]


def test_a_row_named_by_a_step_in_progress_is_kept(heartbeat: Heartbeat) -> None:
    workflow = Heroless.start()
    workflow.executions.update(state="in_progress", process=heartbeat.process_id, started_at=clock.now())
    heartbeat.stop()
    assert Process.objects.get().pk == heartbeat.process_id


# -- for dispatchers


def test_a_dispatcher_gets_one_heartbeat_per_process_and_alias() -> None:
    first = ensure("default", "celery")
    assert first is not None
    assert ensure("default", "celery") is first
    assert Process.objects.count() == 1
    stop_all()
    assert not Process.objects.exists()


def test_it_never_starts_inside_an_atomic_block() -> None:
    with transaction.atomic():
        assert ensure("default", "celery") is None
    assert not Process.objects.exists()
    assert ensure("default", "celery") is not None


def test_a_forked_child_has_its_own_identity() -> None:
    parent = ensure("default", "celery")
    assert parent is not None
    reading, writing = os.pipe()
    # The child must not use the parent's connections.
    connections.close_all()
    child = os.fork()
    if child == 0:
        try:
            inherited = module._running.get("default")
            own = ensure("default", "celery")
            assert own is not None
            os.write(writing, f"{inherited} {own.process_id} {Process.objects.count()}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as told:
        kept, its_own, count = told.read().split()
    assert kept == "None"
    assert its_own != str(parent.process_id)
    assert count == "2"
    assert ensure("default", "celery") is parent
