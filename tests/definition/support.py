"""Helpers of the tests of definitions: a base class, and class bodies given as text."""

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
"""The file name of classes created by `define`."""


class Base(Workflow):
    """Base class that gives test classes an app."""

    class Meta:
        abstract = True
        app_label = "testapp"


@contextmanager
def registry_left_alone() -> Iterator[None]:
    """Unregister the classes created in the block, here and in Django's registry of models."""
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
    """Run class definitions given as text, and return the last class.

    Error messages refer to `FILE` and to the lines of the text, counted from 1.
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
