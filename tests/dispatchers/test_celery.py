"""Celery for real: a broker, workers with forked children, and a process that feeds."""

from __future__ import annotations

import base64
import json
import signal
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from geneva_drive import clock
from geneva_drive.dispatchers.running import message_id
from geneva_drive.models import Process, StepExecution, Workflow
from tests.acceptance.processes import until
from tests.acceptance.room import Room
from tests.acceptance.workshop.workflows import Chain, Deadly, Patient, Slow
from tests.dispatchers.processes import CeleryProject
from tests.servers.brokers import relaunch
from tests.servers.processes import PrivateServer

# Seconds: on a machine that is busy with other tests a process may not come to beat for as long as a short lease.
NOBODY_DIES = 30
# House is kept twice in a lease: where a test waits for that, the lease is as short as nobody dies of.
HOUSE_IS_KEPT_OFTEN = 12
ONCE = "what is tested is the broker's and the pool's behaviour: once is enough"

# Redis hands a message out again after so many seconds, and looks for such messages every second.
IMPATIENT = {"visibility_timeout": 2, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}

BROKERS = ["redis_url", "rabbitmq_url"]

Make = Callable[..., CeleryProject]


def _after(seconds: float) -> datetime:
    return clock.now() + timedelta(seconds=seconds)


def _finished(*workflows: Workflow) -> bool:
    keys = [each.pk for each in workflows]
    finished: int = Workflow.objects.filter(pk__in=keys, state="finished").count()
    return finished == len(keys)


def _messages(url: str, queue: str) -> list[dict[str, Any]]:
    import redis

    with redis.Redis.from_url(url) as client:
        raw: Any = client.lrange(queue, 0, -1)
        return [json.loads(each) for each in raw]


@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("inline_continuation", [True, False])
def test_workflows_run_to_their_end(
    celery: Make, room: Room, request: pytest.FixtureRequest, broker: str, inline_continuation: bool
) -> None:
    project = celery(request.getfixturevalue(broker))
    workflows = [Chain.start() for _ in range(3)] + [Chain.start(at=_after(1))]

    worker = project.worker(INLINE_CONTINUATION=inline_continuation, LEASE=NOBODY_DIES)
    until(lambda: _finished(*workflows), "everything is done", child=worker)

    assert Counter((words[0], words[1]) for words in room.notes()) == {
        (name, str(each.pk)): 1 for each in workflows for name in ("one", "two", "three", "four", "five")
    }
    for execution in StepExecution.objects.all():
        # The process that ran it is known by its heartbeat, whatever carried it there.
        assert Process.objects.get(executions=execution).kind == "celery"
    first = StepExecution.objects.filter(step_name="one")
    assert all(each.dispatched_at and each.job_id for each in first)

    worker.signal(signal.SIGTERM)
    worker.finish()
    assert not Process.objects.exists(), worker.output()


def test_messages_carry_an_id_and_an_alias_and_nothing_else(celery: Make, redis_url: str) -> None:
    project = celery(redis_url)
    workflow = Chain.start()

    (message,) = _messages(redis_url, project.queue)

    assert message["content-type"] == "application/json"
    arguments, keywords, _ = json.loads(base64.b64decode(message["body"]))
    assert (arguments, keywords) == ([message_id(workflow.executions.get().pk), "default"], {})
    assert message["headers"]["task"] == "geneva_drive.run_execution"
    assert message["headers"]["id"] == workflow.executions.get().job_id


def test_only_executions_due_soon_go_to_the_broker(celery: Make, redis_url: str) -> None:
    project = celery(redis_url, lookahead=60)

    soon = Chain.start(at=_after(30))
    late = Chain.start(at=_after(90))
    with transaction.atomic():
        rolled_back = Chain.start()
        transaction.set_rollback(True)

    messages = _messages(redis_url, project.queue)
    assert [message["headers"]["id"] for message in messages] == [soon.executions.get().job_id]
    assert messages[0]["headers"]["eta"]
    assert late.executions.get().dispatched_at is None
    assert not Workflow.objects.filter(pk=rolled_back.pk).exists()


def test_a_long_wait_is_fed_when_its_time_comes_near(celery: Make, redis_url: str, room: Room) -> None:
    project = celery(redis_url, lookahead=0)
    workflow = Chain.start(at=_after(4))
    assert _messages(redis_url, project.queue) == []

    worker = project.worker(LEASE=NOBODY_DIES)
    feeders = [project.feeder(LEASE=NOBODY_DIES), project.feeder(LEASE=NOBODY_DIES)]
    until(lambda: _finished(workflow), "it is done", child=worker)

    assert len(room.notes()) == 5
    for feeder in feeders:
        feeder.has_said("Feeder on")
        feeder.signal(signal.SIGTERM)
        feeder.finish()
    # Of two feeders one has sent it, once.
    assert worker.output().count("geneva_drive.run_execution[") == 2, "received, succeeded"


@pytest.mark.only_on("postgresql", reason=ONCE)
@pytest.mark.once(reason=ONCE)
@pytest.mark.parametrize("broker", BROKERS)
def test_a_child_that_dies_in_a_step_loses_nothing(
    celery: Make, room: Room, request: pytest.FixtureRequest, broker: str
) -> None:
    project = celery(request.getfixturevalue(broker))
    project.map_queue("deadly")
    room.allow("death")
    workflow = Deadly.start()

    worker, _feeder = project.worker(), project.feeder()
    until(lambda: room.notes("die"), "the child has died", child=worker)
    room.forbid("death")
    until(lambda: _finished(workflow), "it is done", child=worker)

    attempts = list(StepExecution.objects.filter(step_name="die").order_by("pk"))
    assert [each.outcome for each in attempts] == ["recovered", "success"]
    assert len(room.notes("die")) == len(attempts), "each row was begun once"
    assert len(room.notes("after")) == 1


@pytest.mark.only_on("postgresql", reason=ONCE)
@pytest.mark.once(reason=ONCE)
@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("acks_late", [True, False])
def test_a_worker_that_is_killed_in_a_step_loses_nothing(
    celery: Make, room: Room, request: pytest.FixtureRequest, broker: str, acks_late: bool
) -> None:
    project = celery(request.getfixturevalue(broker), transport=IMPATIENT, acks_late=acks_late)
    workflow = Patient.start()
    first = project.worker()
    until(lambda: room.notes("began"), "the step has begun", child=first)

    first.kill()
    room.allow("go")
    second, _feeder = project.worker(), project.feeder()
    until(lambda: _finished(workflow), "it is done", child=second)

    attempts = list(StepExecution.objects.filter(step_name="hold").order_by("pk"))
    assert [each.outcome for each in attempts] == ["recovered", "success"]
    assert len(room.notes("began")) == 2
    assert len(room.notes("after")) == 1


@pytest.mark.only_on("postgresql", reason=ONCE)
@pytest.mark.once(reason=ONCE)
def test_a_message_that_is_delivered_again_while_its_step_runs_changes_nothing(
    celery: Make, redis_url: str, room: Room
) -> None:
    project = celery(redis_url, transport=IMPATIENT)
    workflow = Patient.start()
    worker, other = project.worker("--concurrency", "1"), project.worker("--concurrency", "1")
    until(lambda: room.notes("began"), "the step has begun")

    def received() -> int:
        return sum(
            line.count("geneva_drive.run_execution[") and "received" in line
            for child in (worker, other)
            for line in child.output().splitlines()
        )

    until(lambda: received() >= 2, "the broker has lost its patience")
    room.allow("go")
    until(lambda: _finished(workflow), "it is done", child=worker)

    assert len(room.notes("began")) == 1
    assert StepExecution.objects.count() == 2


@pytest.mark.only_on("postgresql", reason=ONCE)
@pytest.mark.once(reason=ONCE)
def test_a_warm_shutdown_ends_after_the_running_step(celery: Make, redis_url: str, room: Room) -> None:
    project = celery(redis_url)
    workflow = Patient.start()
    worker = project.worker()
    until(lambda: room.notes("began"), "the step has begun", child=worker)

    worker.signal(signal.SIGTERM)
    until(lambda: "shutdown" in worker.output(), "the worker shuts down", child=worker)
    room.allow("go")
    worker.finish()

    assert room.notes("ended")
    assert not room.notes("after"), "the chain was not gone on with"
    assert not Process.objects.exists()
    following = StepExecution.objects.get(step_name="after")
    assert (following.state, following.dispatched_at is not None) == ("scheduled", True)
    successor = project.worker()
    until(lambda: _finished(workflow), "it is done", child=successor)
    assert len(room.notes("after")) == 1


@pytest.mark.only_on("postgresql", reason=ONCE)
@pytest.mark.once(reason=ONCE)
@pytest.mark.parametrize("broker", ["private_redis", "private_rabbitmq"])
def test_a_broker_that_restarts_loses_nothing(
    celery: Make, request: pytest.FixtureRequest, broker: str, room: Room
) -> None:
    server: PrivateServer = request.getfixturevalue(broker)
    project = celery(server.url)
    worker = project.worker(LEASE=HOUSE_IS_KEPT_OFTEN)
    project.feeder(OVERDUE_AFTER=5, LEASE=HOUSE_IS_KEPT_OFTEN)
    workflows = [Slow.start() for _ in range(5)]
    until(lambda: room.notes("one"), "work has begun", child=worker)

    if broker == "private_redis":
        server.process.kill()
    else:
        # Of the processes that it is made of, this one ends the others.
        server.process.terminate()
    server.process.wait()
    # Nobody answers: that is no matter of those who start a workflow.
    unsent = [Slow.start() for _ in range(3)]
    assert all(each.executions.get().dispatched_at is None for each in unsent)
    relaunch(server)
    workflows += unsent + [Slow.start() for _ in range(3)]
    workers = [worker]

    def done() -> bool:
        # Celery's consumer does not always survive the loss of Redis; a supervisor would start it again.
        if workers[-1].process.poll() is not None:
            workers.append(project.worker(LEASE=HOUSE_IS_KEPT_OFTEN))
        return bool(_finished(*workflows))

    until(done, "everything is done")

    began = Counter(words[0] for words in room.notes())
    assert set(began) == {"one", "two"}
    assert began.total() == StepExecution.objects.count(), "each row was begun once"
    outcomes = Counter(StepExecution.objects.values_list("outcome", flat=True))
    assert outcomes["success"] == 22
    if len(workers) == 1:
        assert outcomes.total() == 22


@pytest.mark.only_on("postgresql", reason=ONCE)
@pytest.mark.once(reason=ONCE)
def test_messages_lost_by_the_broker_are_sent_again(
    celery: Make, private_redis: PrivateServer, room: Room
) -> None:
    import redis

    project = celery(private_redis.url)
    workflow = Chain.start()
    with redis.Redis.from_url(private_redis.url) as client:
        client.flushall()
    sent = StepExecution.objects.get().dispatched_at
    assert sent is not None
    until(lambda: clock.now() > sent + timedelta(seconds=2), "it is overdue")

    worker = project.worker(LEASE=NOBODY_DIES)
    # It keeps house as soon as it begins.
    project.feeder(OVERDUE_AFTER=2, LEASE=NOBODY_DIES)
    until(lambda: _finished(workflow), "it is done", child=worker)

    assert len(room.notes()) == 5
    assert StepExecution.objects.count() == 5, "the same rows"
