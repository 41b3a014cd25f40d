"""Loops in real workers that are stopped, killed, paused or suspended meanwhile."""

from __future__ import annotations

import signal
from collections import Counter

from tests.acceptance.processes import Child, Launcher, until
from tests.acceptance.room import Room
from tests.acceptance.workshop.workflows import DeadlyLoop, Loop

EVERY_ITEM = [f"item-{item}" for item in range(10)]


def done(room: Room) -> list[str]:
    return [words[0] for words in room.notes() if words[0].startswith("item-")]


def in_the_middle(room: Room, child: Child) -> None:
    until(lambda: room.notes("began-5"), "the loop is at its fifth item", child=child)


def test_a_worker_shutdown_ends_its_loop_and_another_repeats_nothing(launch: Launcher, room: Room) -> None:
    workflow = Loop.start()
    child = launch.worker()
    in_the_middle(room, child)

    child.signal(signal.SIGTERM)
    room.allow("go")

    assert child.wait() == 0
    stopped = workflow.executions.get(outcome="continued")
    assert stopped.metadata == {"reason": "shutdown"}
    assert stopped.cursor == len(done(room)) < 10
    launch.worker("--drain").finish()
    workflow.refresh_from_db()
    assert workflow.state == "finished"
    assert done(room) == EVERY_ITEM


def test_a_killed_workers_loop_continues_at_its_cursor(launch: Launcher, room: Room) -> None:
    workflow = Loop.start()
    child = launch.worker()
    in_the_middle(room, child)

    child.kill()
    room.allow("go")
    launch.worker("--max-steps", "1").finish()

    workflow.refresh_from_db()
    assert workflow.state == "finished"
    assert done(room) == EVERY_ITEM
    assert len(room.notes("began-5")) == 2
    assert len(room.notes("began-4")) == 1
    rows = workflow.executions.order_by("pk").values_list("outcome", "iterations")
    assert list(rows) == [("recovered", 5), ("success", 10)]


def test_a_loop_that_kills_its_worker_repeatedly_still_completes(launch: Launcher, room: Room) -> None:
    workflow = DeadlyLoop.start()

    for _ in range(3):
        assert launch.worker("--max-steps", "1", settings={"LEASE": 1}).wait() == -signal.SIGKILL
    launch.worker("--max-steps", "1", settings={"LEASE": 1}).finish()

    workflow.refresh_from_db()
    assert workflow.state == "finished"
    times = Counter(done(room))
    # From the last checkpoint: at 2, at 4 and at 8 items.
    assert times == {**dict.fromkeys(EVERY_ITEM, 1), "item-2": 2, "item-3": 2, "item-4": 2, "item-8": 2}


def test_a_pause_stops_a_loop_in_a_worker_and_resume_repeats_nothing(launch: Launcher, room: Room) -> None:
    workflow = Loop.start()
    child = launch.worker()
    in_the_middle(room, child)

    workflow.pause(by="Ada")
    room.allow("go")
    until(lambda: Loop.objects.paused().exists(), "it is paused", child=child)
    assert done(room) == EVERY_ITEM[:6]
    workflow.refresh_from_db()
    workflow.resume(by="Ada")
    until(lambda: Loop.objects.finished().exists(), "it is finished", child=child)

    assert done(room) == EVERY_ITEM


def test_a_worker_suspended_beyond_its_lease_stops_at_its_next_checkpoint(
    launch: Launcher, room: Room
) -> None:
    workflow = Loop.start()
    asleep = launch.worker()
    in_the_middle(room, asleep)
    asleep.stop()

    room.allow("go")
    launch.worker("--max-steps", "1").finish()
    workflow.refresh_from_db()
    assert workflow.state == "finished"
    asleep.signal(signal.SIGCONT)
    discarded = "was recovered or changed while the step was running"
    until(lambda: discarded in asleep.output(), "it has found out", child=asleep)
    asleep.signal(signal.SIGTERM)

    assert asleep.wait() == 0
    assert Counter(done(room)) == {**dict.fromkeys(EVERY_ITEM, 1), "item-5": 2}
    rows = workflow.executions.order_by("pk").values_list("outcome", "cursor")
    assert list(rows) == [("recovered", 5), ("success", 10)]
