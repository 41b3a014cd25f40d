"""What is known of a workflow class once it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps

from geneva_drive.definition.collection import StepCollection
from geneva_drive.definition.conditions import Condition
from geneva_drive.definition.declarations import Declaration
from geneva_drive.definition.policies import Policy
from geneva_drive.exceptions import StepConfigurationError

__all__ = ["HOOKS", "ClassDefinition"]

HOOKS = ("before_step", "after_step", "around_step")


@dataclass(frozen=True, slots=True)
class ClassDefinition:
    """What the author of a workflow class wrote, checked.

    Attributes
    ----------
    label
        ``app_label.ClassName``, as rows hold it in their type.
    hero_model
        ``app_label.ModelName`` or the model; None for any. Resolved when it is needed, for models may be
        loaded later.
    job_options
        The class's own, for `options.merge`.
    former_types
        Labels that the class had before. Not inherited.
    is_abstract
        The class shares steps and can be neither started nor stored.
    is_base
        The class is ``Workflow`` itself.
    hooks
        Those of `HOOKS` that the class or one of its bases overrides.
    policies
        What holds for exceptions in any step, in the order of declaration, that of base classes first.
    own_job_options
        Those of this class and its mixins, before anything is inherited by default; None if it gives none.
    declared
        What this class body alone declares, from which the steps of subclasses are made.
    """

    label: str
    steps: StepCollection = field(default_factory=StepCollection)
    cancel_conditions: tuple[Condition, ...] = ()
    hero_model: Any = None
    job_options: Mapping[str, Any] = field(default_factory=dict)
    former_types: tuple[str, ...] = ()
    may_proceed_without_hero: bool = False
    is_abstract: bool = False
    is_base: bool = False
    hooks: frozenset[str] = frozenset()
    policies: tuple[Policy, ...] = ()
    own_job_options: Mapping[str, Any] | None = None
    declared: tuple[Declaration, ...] = ()

    @property
    def is_startable(self) -> bool:
        return not (self.is_abstract or self.is_base)

    @property
    def has_before_step(self) -> bool:
        return "before_step" in self.hooks

    @property
    def has_after_step(self) -> bool:
        return "after_step" in self.hooks

    @property
    def has_around_step(self) -> bool:
        return "around_step" in self.hooks

    def resolve_hero_model(self) -> type[Any] | None:
        """Return the model that `hero_model` stands for, or None when any will do.

        Raises
        ------
        StepConfigurationError
            No such model is installed.
        """
        if not isinstance(self.hero_model, str):
            model: type[Any] | None = self.hero_model
            return model
        try:
            return apps.get_model(self.hero_model)
        except LookupError as error:
            raise StepConfigurationError(
                f"{self.label}: hero_model={self.hero_model!r} names no installed model. Give "
                f"'app_label.ModelName', and see that the app is in INSTALLED_APPS. ({error})"
            ) from error
