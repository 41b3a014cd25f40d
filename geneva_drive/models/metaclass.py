"""The metaclass of workflows: it collects the steps of a class and makes it a hidden proxy.

Django leaves a proxy with ``auto_created`` out of migrations, content types and permissions, while managers,
signals on saving, foreign keys to the base class and pickling work. So a new workflow class needs no migration.

All checks run before Django makes the class, because it registers models for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.apps import apps
from django.db.models.base import ModelBase
from django.db.models.options import Options

from geneva_drive.definition.class_body import ClassBody
from geneva_drive.definition.class_definition import ClassDefinition, collect
from geneva_drive.definition.collection import StepCollection
from geneva_drive.definition.registry import registry
from geneva_drive.definition.validation import Blueprint, linearize
from geneva_drive.models.class_options import check_attributes, checked_options

META_OPTIONS = ("app_label", "abstract", "verbose_name", "ordering")

LONGEST_LABEL = 150
"""Characters. The width of the column ``type``."""

NEVER_A_STEP = frozenset(
    {
        "Meta",
        "_state",
        "after_step",
        "around_step",
        "before_step",
        "current_execution",
        "exception_policies",
        "former_types",
        "hero",
        "hero_model",
        "job_options",
        "logger",
        "may_proceed_without_hero",
        "objects",
        "received_signal",
        "signal",
        "steps",
    }
)
"""Names with a special meaning, whether or not the base class has such an attribute."""


class WorkflowMeta(ModelBase):
    """The class of ``Workflow`` and of every class derived from it."""

    _geneva: ClassDefinition
    steps: StepCollection

    @classmethod
    def __prepare__(cls, name: str, bases: tuple[type, ...], /, **kwargs: Any) -> ClassBody:
        return ClassBody()

    def __new__(mcs, name: str, bases: tuple[type, ...], attrs: dict[str, Any], **kwargs: Any) -> Any:
        attrs = dict(attrs)
        ancestors = linearize(bases)
        workflows = tuple(each for each in ancestors if isinstance(each, WorkflowMeta))
        if not workflows:
            attrs["_geneva"] = ClassDefinition(label=f"geneva_drive.{name}", is_base=True)
            attrs["steps"] = attrs["_geneva"].steps
            return super().__new__(mcs, name, bases, attrs, **kwargs)

        qualname = attrs.get("__qualname__", name)
        blueprint = Blueprint(name, attrs.get("__module__", "?"), qualname, attrs, bases, ancestors)
        meta = _meta_options(blueprint)
        is_abstract = meta.pop("abstract", False)
        app_label = meta.get("app_label") or _app_of(blueprint)
        label = f"{app_label}.{name}"
        if len(label) > LONGEST_LABEL:
            raise blueprint.place.error(
                f"its type {label!r} is longer than {LONGEST_LABEL} characters. Shorten it."
            )
        base = workflows[-1]
        check_attributes(blueprint, base)
        definition, attrs = collect(
            blueprint,
            label,
            reserved=NEVER_A_STEP | set(dir(base)),
            known={each: each._geneva.declared for each in workflows},
        )
        definition = replace(definition, is_abstract=is_abstract, **checked_options(blueprint, label, base))
        registry.check(label, definition.former_types, module=blueprint.module, path=blueprint.path)

        attrs["Meta"] = type(
            "Meta", (), {**meta, "app_label": app_label, "proxy": True, "auto_created": True}
        )
        attrs["_geneva"] = definition
        attrs["steps"] = definition.steps
        attrs["former_types"] = list(definition.former_types)
        _restore_columns(attrs, ancestors, base)
        new = _replace_predecessor(mcs, blueprint, attrs, app_label, kwargs)
        if definition.is_abstract:
            # As on Django's abstract classes, for `class Meta(Base.Meta)`.
            new.Meta = type("Meta", (), meta)
            registry.discard(label)
        else:
            registry.register(new)
        return new


def _meta_options(blueprint: Blueprint) -> dict[str, Any]:
    """Return the options of ``class Meta``. Only those in `META_OPTIONS` are allowed."""
    # Without its own Meta a class inherits that of an abstract base, where `abstract` has been removed.
    meta = blueprint.find("Meta")
    options = {name: getattr(meta, name) for name in dir(meta) if meta and not name.startswith("_")}
    for option, value in options.items():
        if option not in META_OPTIONS:
            raise blueprint.place.error(
                f"Meta.{option}={value!r} is not possible, since workflow classes share one table. Take it out. "
                f"Possible are: {', '.join(META_OPTIONS)}."
            )
    if not isinstance(options.get("abstract", False), bool):
        raise blueprint.place.error(f"Meta.abstract={options['abstract']!r} is neither True nor False.")
    return options


def _app_of(blueprint: Blueprint) -> str:
    config = apps.get_containing_app_config(blueprint.module)
    if config is None:
        raise blueprint.place.error(
            "its module is in no app of INSTALLED_APPS. Set Meta.app_label, or add the app."
        )
    return config.label


def _restore_columns(attrs: dict[str, Any], ancestors: tuple[type, ...], base: type) -> None:
    """Keep ``job_options = {…}`` on a class from hiding the column of the same name."""
    attrs.pop("job_options", None)
    nearest = next((vars(each)["job_options"] for each in ancestors if "job_options" in vars(each)), None)
    if isinstance(nearest, Mapping) and "job_options" in vars(base):
        attrs["job_options"] = vars(base)["job_options"]


def _replace_predecessor(
    mcs: type[WorkflowMeta],
    blueprint: Blueprint,
    attrs: dict[str, Any],
    app_label: str,
    kwargs: dict[str, Any],
) -> Any:
    """Let Django make the class. It replaces one of the same module and name, as in shells and reloads."""
    models = Options.default_apps.all_models[app_label]
    key = blueprint.name.lower()
    predecessor = models.get(key)
    if predecessor is not None:
        same = (predecessor.__name__, predecessor.__module__) == (blueprint.name, blueprint.module)
        if not same or not isinstance(predecessor, WorkflowMeta):
            raise blueprint.place.error(
                f"the label '{app_label}.{blueprint.name}' is {predecessor.__module__}."
                f"{predecessor.__qualname__} already. Rename one of the two classes."
            )
        del models[key]
    try:
        return ModelBase.__new__(mcs, blueprint.name, blueprint.bases, attrs, **kwargs)
    except BaseException:
        if predecessor is not None:
            models[key] = predecessor
        raise
