"""Five steps that do nothing: what is measured is the engine."""

from __future__ import annotations

from geneva_drive import Workflow, step


class Noop(Workflow):
    """For nobody."""

    may_proceed_without_hero = True

    @step
    def one(self) -> None: ...

    @step
    def two(self) -> None: ...

    @step
    def three(self) -> None: ...

    @step
    def four(self) -> None: ...

    @step
    def five(self) -> None: ...


class NoopForHero(Noop):
    """The same for a hero, which each step has to find."""

    may_proceed_without_hero = False
    hero_model = "app.Thing"
