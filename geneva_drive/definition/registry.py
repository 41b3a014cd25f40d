"""Which workflow class a stored type stands for.

Only classes that were made by the workflows' metaclass are in it, so a row whose type names anything else
in Python resolves to nothing.
"""

from __future__ import annotations

import threading
from typing import Any

from geneva_drive.exceptions import StepConfigurationError


class Registry:
    """The workflow classes by the types that rows have, present and former."""

    def __init__(self) -> None:
        # Imports may run in several threads. Readers need no lock: a dict look-up is atomic.
        self._lock = threading.RLock()
        self._classes: dict[str, type[Any]] = {}
        self._former: dict[str, str] = {}

    def get(self, type_label: str | None) -> type[Any] | None:
        """Return the class that is or was called ``app_label.ClassName``, or None."""
        if type_label is None:
            return None
        found = self._classes.get(type_label)
        return found if found is not None else self._classes.get(self._former.get(type_label, ""))

    def all(self) -> tuple[type[Any], ...]:
        """Return every class that can be started, ordered by label."""
        with self._lock:
            return tuple(self._classes[label] for label in sorted(self._classes))

    def labels_for(self, cls: type[Any]) -> tuple[str, ...]:
        """Return every type that rows of this class and its subclasses may have, former ones included."""
        labels: set[str] = set()
        for each in {cls, *(known for known in self.all() if issubclass(known, cls))}:
            definition = each._geneva
            if definition.is_startable:
                labels.add(definition.label)
            labels.update(definition.former_types)
        return tuple(sorted(labels))

    def check(self, label: str, former_types: tuple[str, ...], *, module: str, path: str) -> None:
        """Refuse a class whose types would stand for another class too.

        A class of the same label from the same module is no other class: it is about to be replaced, as
        after a reload.

        Raises
        ------
        StepConfigurationError
            Naming both classes.
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
        """Make a class known by its label and its former types, in place of its predecessor."""
        definition = cls._geneva
        with self._lock:
            self.discard(definition.label)
            self._classes[definition.label] = cls
            self._former.update(dict.fromkeys(definition.former_types, definition.label))

    def discard(self, label: str) -> None:
        """Forget the class of this label, if there is one."""
        with self._lock:
            self._classes.pop(label, None)
            for old in [old for old, known in self._former.items() if known == label]:
                del self._former[old]


def _path(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


registry = Registry()
