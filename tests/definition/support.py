"""What tests of definitions share: a base to derive from, and class bodies as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps

from geneva_drive import Workflow, cancel_if, removed_step, step
from geneva_drive.definition.registry import registry

FILE = "shop/workflows.py"
"""What a class made by `define` names as its file."""


class Base(Workflow):
    """Gives the classes of the tests an app."""

    class Meta:
        abstract = True
        app_label = "testapp"


@contextmanager
def registry_left_alone() -> Iterator[None]:
    """Forget the classes that are made meanwhile, here and in Django's registry of models."""
    classes, former = dict(registry._classes), dict(registry._former)
    models = {label: dict(by_name) for label, by_name in apps.all_models.items()}
    try:
        yield
    finally:
        registry._classes, registry._former = classes, former
        for label in list(apps.all_models):
            apps.all_models[label].clear()
            apps.all_models[label].update(models.get(label, {}))
        apps.clear_cache()


def define(source: str, **names: Any) -> Any:
    """Run class definitions that are given as text, and return the last class.

    Line numbers in complaints are those of the text, counted from 1, with `FILE` as the file.
    """
    namespace: dict[str, Any] = {
        "__name__": "shop.workflows",
        "Base": Base,
        "Workflow": Workflow,
        "cancel_if": cancel_if,
        "datetime": datetime,
        "removed_step": removed_step,
        "step": step,
        "timedelta": timedelta,
        **names,
    }
    before = set(namespace)
    exec(compile(textwrap.dedent(source).strip("\n"), FILE, "exec"), namespace)
    return [value for name, value in namespace.items() if name not in before and isinstance(value, type)][-1]
