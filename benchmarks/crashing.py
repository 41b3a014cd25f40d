"""The workflow of ``benchmarks.crashes``: five steps that record their start and end in the database."""

from __future__ import annotations

import os
import random
import time

from django.db import connections

from geneva_drive import Workflow, step

STEPS = ("one", "two", "three", "four", "five")

MOST_SECONDS = float(os.environ.get("GENEVA_BENCH_BODY", "0.1"))
"""The maximum duration of a body; the actual one is random."""


class Crashing(Workflow):
    """Records the start and the end of each body, each in a separate transaction."""

    may_proceed_without_hero = True

    class Meta:
        app_label = "crashing"

    def _leave_marks(self) -> None:
        assert self.current_execution is not None
        with connections[self._state.db or "default"].cursor() as cursor:
            for mark in ("began", "ended"):
                cursor.execute(
                    "INSERT INTO mark (workflow, step, mark) VALUES (%s, %s, %s)",
                    [self.pk, self.current_execution.step_name, mark],
                )
                if mark == "began":
                    time.sleep(random.uniform(0, MOST_SECONDS))

    @step
    def one(self) -> None:
        self._leave_marks()

    @step
    def two(self) -> None:
        self._leave_marks()

    @step
    def three(self) -> None:
        self._leave_marks()

    @step
    def four(self) -> None:
        self._leave_marks()

    @step
    def five(self) -> None:
        self._leave_marks()
