"""Workflows that the tests share; most tests declare their own."""

from __future__ import annotations

from geneva_drive import Workflow, removed_step, step
from tests.testapp.models import Effect


class FiveSteps(Workflow):
    """Five steps that leave one row each."""

    hero_model = "testapp.Order"

    def _leave(self, name: str) -> None:
        Effect.objects.using(self._state.db).create(workflow=str(self.pk), step=name)

    @step
    def one(self) -> None:
        self._leave("one")

    @step
    def two(self) -> None:
        self._leave("two")

    buried = removed_step()

    @step
    def three(self) -> None:
        self._leave("three")

    @step
    def four(self) -> None:
        self._leave("four")

    @step
    def five(self) -> None:
        self._leave("five")


class Heroless(Workflow):
    """Runs for nobody."""

    may_proceed_without_hero = True

    @step
    def first(self) -> None:
        pass

    @step
    def second(self) -> None:
        pass
