"""Checks of the other attributes of a workflow class: hero model, job options, former types, hooks, fields."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from django.db import models
from django.db.models.base import ModelBase
from django.db.models.manager import BaseManager

from geneva_drive.definition.options import validate
from geneva_drive.definition.validation import (
    MISSING,
    Blueprint,
    Declared,
    problem_with_call,
    problem_with_function,
)

HOOKS = ("before_step", "after_step", "around_step")


def check_attributes(blueprint: Blueprint, base: Any) -> None:
    """Refuse fields, other managers, and values that would hide a column of `base`.

    Raises
    ------
    StepConfigurationError
        With the name of the attribute and, if it is inherited, of the mixin.
    """
    for name in ("steps", "_geneva"):
        if name in blueprint.body and not isinstance(blueprint.body[name], Declared):
            raise blueprint.place.error(f"{name!r} is made from the steps of the class. Choose another name.")
    fields = [*base._meta.local_fields, *base._meta.private_fields]
    columns = {name for field in fields for name in (field.name, getattr(field, "attname", field.name))}
    manager = type(base._meta.default_manager)
    for origin, name, value in _attributes(blueprint, base):
        if isinstance(value, models.Field):
            raise blueprint.place.error(
                f"the field {name!r}{origin} has no column, since workflow classes share one table. Store its "
                "value on the hero or in metadata."
            )
        if isinstance(value, BaseManager) and not isinstance(value, manager):
            raise blueprint.place.error(
                f"the manager {name!r}{origin} would find rows of other workflow classes. Derive it from "
                f"{manager.__module__}.{manager.__qualname__}."
            )
        if name in columns and name != "job_options" and not isinstance(value, Declared):
            raise blueprint.place.error(
                f"{name!r}{origin} would hide a column of every workflow. Choose another name; for type "
                f"checkers, annotate without a value."
            )


def _attributes(blueprint: Blueprint, base: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the attributes of the class body and its mixins: origin, name and value."""
    yield from (("", name, value) for name, value in blueprint.body.items())
    for mixin in blueprint.ancestors:
        if mixin in base.__mro__ or isinstance(mixin, type(base)):
            continue
        origin = f" (inherited from {mixin.__module__}.{mixin.__qualname__})"
        if isinstance(mixin, ModelBase) and hasattr(mixin, "_meta"):
            opts = mixin._meta
            if not opts.abstract:
                raise blueprint.place.error(
                    f"{opts.label} is a model with its own table, and workflow classes share one. Derive from "
                    "Workflow and abstract models only."
                )
            for each in (
                *opts.local_fields,
                *opts.local_many_to_many,
                *opts.private_fields,
                *opts.local_managers,
            ):
                yield origin, each.name, each
        yield from ((origin, name, value) for name, value in vars(mixin).items())


def checked_options(blueprint: Blueprint, label: str, base: Any) -> dict[str, Any]:
    """Return the fields of a `ClassDefinition` that are not about steps. Raises StepConfigurationError."""
    hero_model = blueprint.find("hero_model")
    if hero_model is MISSING or hero_model is None:
        hero_model = None
    elif not _is_label(hero_model) and not (
        isinstance(hero_model, type)
        and issubclass(hero_model, models.Model)
        and not hero_model._meta.abstract
    ):
        raise blueprint.place.error(
            f"hero_model={hero_model!r} is not a model. Give 'app_label.ModelName' or the model class; for any, "
            "None."
        )
    without_hero = blueprint.find("may_proceed_without_hero")
    if without_hero is MISSING:
        without_hero = False
    elif not isinstance(without_hero, bool):
        raise blueprint.place.error(
            f"may_proceed_without_hero={without_hero!r} is neither True nor False. Give one of them."
        )
    return {
        "own_job_options": _own_job_options(blueprint),
        "hero_model": hero_model,
        "former_types": _former_types(blueprint, label),
        "may_proceed_without_hero": without_hero,
        "hooks": _overridden_hooks(blueprint, base),
    }


def _is_label(value: Any) -> bool:
    """Whether it can be ``app_label.ClassName``."""
    parts = value.split(".") if isinstance(value, str) else []
    return len(parts) == 2 and all(part.isidentifier() for part in parts)


def _former_types(blueprint: Blueprint, label: str) -> tuple[str, ...]:
    value = blueprint.body.get("former_types", ())  # a subclass does not inherit them
    if not isinstance(value, list | tuple):
        raise blueprint.place.error(
            f"former_types={value!r} is not a list. Give a list of types such as 'shop.OldWorkflow'."
        )
    for old in value:
        if not _is_label(old):
            raise blueprint.place.error(
                f"former_types has {old!r}, which cannot have been a type. Write it as 'app_label.ClassName'."
            )
        if old == label:
            raise blueprint.place.error(
                f"former_types has {old!r}, which is the class's type now. Take it out."
            )
    if len(set(value)) != len(value):
        raise blueprint.place.error(f"former_types={value!r} names a type twice. Take one out.")
    return tuple(value)


def _own_job_options(blueprint: Blueprint) -> dict[str, Any] | None:
    """Return the job options of the nearest class that gives any, or None: they are not merged."""
    for owner in (None, *blueprint.ancestors):
        values: Mapping[str, Any] = blueprint.body if owner is None else vars(owner)
        if "_geneva" in values:
            inherited = values["_geneva"].own_job_options
            if inherited is not None:
                return dict(inherited)
        elif "job_options" in values:
            return validate(values["job_options"], f"{blueprint.path}.job_options")
    return None


def _overridden_hooks(blueprint: Blueprint, base: Any) -> frozenset[str]:
    """Return the names of the hooks that are not those of `base`. Raises StepConfigurationError."""
    hooks = set()
    for hook in HOOKS:
        function = blueprint.find(hook)
        if function is MISSING or function is vars(base).get(hook):
            continue
        if hook == "around_step" and inspect.isgeneratorfunction(function):
            raise blueprint.place.error(
                "around_step is a generator, not a context manager. Put @contextlib.contextmanager above it."
            )
        arguments = ("self", "execution")
        if problem := problem_with_call(function, "hooks", *arguments) or problem_with_function(
            function, *arguments
        ):
            raise blueprint.place.error(f"{hook}: {problem}")
        hooks.add(hook)
    return frozenset(hooks)
