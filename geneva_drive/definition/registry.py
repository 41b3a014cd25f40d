"""The registry: which workflow class a row's type names.

It has only classes made by the workflows' metaclass, so the type of a row cannot name any other object.
"""

from __future__ import annotations

import threading
from typing import Any

from geneva_drive.exceptions import StepConfigurationError


class Registry:
    """The workflow classes by their present and former types."""

    def __init__(self) -> None:
        # Imports may run in several threads. A dict look-up is atomic and needs no lock.
        self._lock = threading.RLock()
        self._classes: dict[str, type[Any]] = {}
        self._former: dict[str, str] = {}

    def get(self, type_label: str | None) -> type[Any] | None:
        """Return the class whose present or former type this is, or None."""
        if type_label is None:
            return None
        found = self._classes.get(type_label)
        return found if found is not None else self._classes.get(self._former.get(type_label, ""))

    def all(self) -> tuple[type[Any], ...]:
        """Return every class that can be started, ordered by label."""
        with self._lock:
            return tuple(self._classes[label] for label in sorted(self._classes))

    def labels_for(self, cls: type[Any]) -> tuple[str, ...]:
        """Return every present and former type of this class and its subclasses."""
        labels: set[str] = set()
        for each in {cls, *(known for known in self.all() if issubclass(known, cls))}:
            definition = each._geneva
            if definition.is_startable:
                labels.add(definition.label)
            labels.update(definition.former_types)
        return tuple(sorted(labels))

    def check(self, label: str, former_types: tuple[str, ...], *, module: str, path: str) -> None:
        """Refuse a class if one of its types belongs to another class.

        A class of the same label from the same module is not another one: it will be replaced, as in a reload.

        Raises
        ------
        StepConfigurationError
            With the names of both classes.
        """
        with self._lock:
            others = {
                known: cls
                for known, cls in self._classes.items()
                if (known, cls.__module__) != (label, module)
            }
            former = {old: others[known] for old, known in self._former.items() if known in others}
        if label in others:
            raise StepConfigurationError(
                f"{path}: the type {label!r} is {_path(others[label])} already. Rename one of the two."
            )
        if label in former:
            raise StepConfigurationError(
                f"{path}: the type {label!r} is in former_types of {_path(former[label])}, so a row could be "
                "of either. Rename the class, or take the type out there."
            )
        for old in former_types:
            taken = others.get(old) or former.get(old)
            if taken is not None:
                raise StepConfigurationError(
                    f"{path}: former_types has {old!r}, which is a type of {_path(taken)}. Take it out there "
                    "or here."
                )

    def register(self, cls: type[Any]) -> None:
        """Add a class under its label and its former types. It replaces an earlier one of that label."""
        definition = cls._geneva
        with self._lock:
            self.discard(definition.label)
            self._classes[definition.label] = cls
            self._former.update(dict.fromkeys(definition.former_types, definition.label))

    def discard(self, label: str) -> None:
        """Remove the class of this label, if there is one."""
        with self._lock:
            self._classes.pop(label, None)
            for old in [old for old, known in self._former.items() if known == label]:
                del self._former[old]


def _path(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


registry = Registry()
