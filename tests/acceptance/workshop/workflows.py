"""The workflows of the acceptance tests. Every body records its step, its workflow and its process."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta

from django.db import OperationalError, connections

from geneva_drive import ExceptionPolicy, Iteration, Workflow, resumable_step, step
from tests.acceptance.room import room
from tests.testapp.models import Effect


class _Noting(Workflow):
    may_proceed_without_hero = True

    class Meta:
        abstract = True
        app_label = "workshop"

    def note(self, what: str = "") -> None:
        assert self.current_execution is not None
        room().note(what or self.current_execution.step_name, self.pk)


class Chain(_Noting):
    """Five plain steps."""

    class Meta:
        app_label = "workshop"

    @step
    def one(self) -> None:
        self.note()

    @step
    def two(self) -> None:
        self.note()

    @step
    def three(self) -> None:
        self.note()

    @step
    def four(self) -> None:
        self.note()

    @step
    def five(self) -> None:
        self.note()


class Patient(_Noting):
    """Its first step waits until the room allows it to continue."""

    class Meta:
        app_label = "workshop"

    @step
    def hold(self) -> None:
        self.note("began")
        room().wait_until_allowed("go")
        self.note("ended")

    @step
    def after(self) -> None:
        self.note()


class Deadly(_Noting):
    """Its second step kills its process while the room allows it."""

    class Meta:
        app_label = "workshop"

    @step
    def before(self) -> None:
        self.note()

    # Claimed separately and not handed off, so that a crash counts for this step.
    @step(queue="deadly")
    def die(self) -> None:
        self.note()
        if room().is_allowed("death"):
            os.kill(os.getpid(), signal.SIGKILL)

    @step
    def after(self) -> None:
        self.note()


class DeadlyPausing(_Noting):
    """Crashing pauses it."""

    class Meta:
        app_label = "workshop"

    @step(on_crash="pause")
    def die(self) -> None:
        self.note()
        os.kill(os.getpid(), signal.SIGKILL)


class DeadlyCanceling(_Noting):
    """Crashing cancels it."""

    class Meta:
        app_label = "workshop"

    @step(on_crash="cancel")
    def die(self) -> None:
        self.note()
        os.kill(os.getpid(), signal.SIGKILL)


class Asking(_Noting):
    """A step that uses the database before and after it waits."""

    class Meta:
        app_label = "workshop"

    @step
    def ask(self) -> None:
        self.leave()
        self.note("began")
        room().wait_until_allowed("go")
        self.note("ended")

    @step
    def after(self) -> None:
        self.leave()
        self.note()

    def leave(self) -> None:
        assert self.current_execution is not None
        Effect.objects.using(self._state.db).create(
            workflow=str(self.pk), step=self.current_execution.step_name
        )


class Slow(_Noting):
    """Steps that take a moment, so that several workers share them."""

    class Meta:
        app_label = "workshop"

    @step
    def one(self) -> None:
        time.sleep(0.02)
        self.note()

    @step
    def two(self) -> None:
        time.sleep(0.02)
        self.note()


class Effects(_Noting):
    """Three steps that write a row each; what the crowds of the concurrency tests run."""

    class Meta:
        app_label = "workshop"

    def leave(self) -> None:
        assert self.current_execution is not None
        Effect.objects.using(self._state.db).create(
            workflow=str(self.pk), step=self.current_execution.step_name
        )

    @step
    def one(self) -> None:
        self.leave()

    # If InnoDB aborts an atomic body in a deadlock, everything is rolled back and the policy decides.
    @step(
        atomic=True,
        on_exception=ExceptionPolicy(
            "reattempt", matching=OperationalError, wait=timedelta(0), report="terminal_only"
        ),
    )
    def two(self) -> None:
        self.leave()

    @step
    def three(self) -> None:
        self.leave()


class Careless(_Noting):
    """Loses its connection during a step and does not notice."""

    class Meta:
        app_label = "workshop"

    @step
    def lose(self) -> None:
        self.note()
        _kill_own_session(self._state.db or "default")

    @step
    def after(self) -> None:
        self.note()


def _kill_own_session(alias: str) -> None:
    """Let the server end this thread's connection, from another connection."""
    mine = connections[alias]
    mine.ensure_connection()
    other = mine.copy()
    try:
        with mine.cursor() as cursor, other.cursor() as killer:
            if mine.vendor == "postgresql":
                cursor.execute("SELECT pg_backend_pid()")
                killer.execute("SELECT pg_terminate_backend(%s)", cursor.fetchone())
            elif mine.vendor == "mysql":
                cursor.execute("SELECT CONNECTION_ID()")
                killer.execute(f"KILL {int(cursor.fetchone()[0])}")
    finally:
        other.close()


class Loop(_Noting):
    """Ten items. At the fifth it waits until the room allows it to continue, and then works slowly."""

    class Meta:
        app_label = "workshop"

    @resumable_step
    def loop(self, iteration: Iteration) -> None:
        for item in iteration.iterate(range(10)):
            self.note(f"began-{item}")
            if item == 5:
                room().wait_until_allowed("go")
            elif item > 5:
                time.sleep(0.4)  # time for a process to receive a signal
            self.note(f"item-{item}")


class DeadlyLoop(_Noting):
    """Kills its process at items 3, 4 and 8, once each. Writes its cursor every other item."""

    class Meta:
        app_label = "workshop"

    @resumable_step(checkpoint_every=2)
    def loop(self, iteration: Iteration) -> None:
        for item in iteration.iterate(range(10)):
            self.note(f"item-{item}")
            if item in (3, 4, 8) and not room().is_allowed(f"past-{item}"):
                room().allow(f"past-{item}")
                os.kill(os.getpid(), signal.SIGKILL)
