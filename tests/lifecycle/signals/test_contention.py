"""Signals that arrive at the same moment as the step that waits for them."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from geneva_drive import Signal, StepExecution, Workflow, step
from geneva_drive.execution import executor
from geneva_drive.worker import Worker
from tests.lifecycle.signals.workflows import Noting
from tests.testapp.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = int(os.environ.get("GENEVA_TEST_ROUNDS", "30"))
"""Workflows, each with two signals and two waiting steps. Set more for a longer manual run."""


class TwoGates(Noting):
    """Waits for two signals, one after the other."""

    @step
    def begin(self) -> None:
        pass

    @step(wait_for="first")
    def one(self) -> None:
        self.note("one", self.received_signal.payload)

    @step(wait_for="second")
    def two(self) -> None:
        self.note("two", self.received_signal.payload)


def in_step(*works: Callable[[int], object]) -> None:
    """Call each function in its own thread, once per round; all threads start a round together."""
    barrier = threading.Barrier(len(works))
    errors: list[BaseException] = []

    def run(work: Callable[[int], object]) -> None:
        try:
            for number in range(ROUNDS):
                barrier.wait(timeout=60)
                work(number)
        except BaseException as error:  # noqa: BLE001 - told to the test
            errors.append(error)
            barrier.abort()
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    real = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
    if errors:
        raise (real or errors)[0]


def test_no_signal_is_lost_duplicated_or_delivered_to_another_step(settings: Any) -> None:
    workflows = [TwoGates.start() for _ in range(ROUNDS)]
    keys = [workflow.pk for workflow in workflows]
    executions = dict(StepExecution.objects.values_list("workflow_id", "pk"))
    # The sender that wakes a step runs it at once, so the next step starts to wait while others send.
    settings.GENEVA_DRIVE = {"DISPATCHER": ("geneva_drive.dispatchers.Immediate", {"heartbeat": False})}

    def park(number: int) -> None:
        executor.execute(executions[keys[number]])

    def send(name: str, within: float) -> Callable[[int], Any]:
        def work(number: int) -> None:
            workflow = Workflow.objects.get(pk=keys[number])
            # Seconds: about as long as the workflow needs to reach the waiting step.
            time.sleep(random.uniform(0, within))
            workflow.signal(name, f"{workflow.pk} {name}", idempotency_key="event")

        return work

    in_step(park, send("first", 0.01), send("second", 0.03), send("second", 0.03))
    Worker(drain=True, poll_interval=0.05).run()

    assert Workflow.objects.finished().count() == ROUNDS
    ran = Counter(Effect.objects.values_list("workflow", "step", "note"))
    expected = [(str(key), "one", f"{key} first") for key in keys]
    expected += [(str(key), "two", f"{key} second") for key in keys]
    assert ran == Counter(expected)
    counters = Counter(Signal.objects.values_list("name", "state", "claimed_count", "consumed_count"))
    assert counters == {("first", "consumed", 1, 1): ROUNDS, ("second", "consumed", 1, 1): ROUNDS}
    waiting = Counter(
        StepExecution.objects.filter(waiting_since__isnull=False).values_list("step_name", flat=True)
    )
    # Both orders of arrival must have occurred, or the test shows nothing.
    assert 0 < waiting["one"] < ROUNDS
    print(f"{ROUNDS} workflows; waiting before their signal: {dict(waiting)}")
