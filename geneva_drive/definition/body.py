"""The namespace that a class body is run in."""

from __future__ import annotations

from typing import Any

from geneva_drive.definition.blueprint import Place
from geneva_drive.definition.declarations import DECLARED
from geneva_drive.definition.declared_step import DeclaredStep

__all__ = ["ClassBody"]


class ClassBody(dict[str, Any]):
    """A class body that notices when a declaration takes a name that is taken, or loses its own.

    In a plain dict the first of two steps of one name would be gone without a trace.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        earlier = self.get(name)
        taken = isinstance(earlier, DECLARED) or (isinstance(value, DECLARED) and name in self)
        # `check = step(check)` is the decorator written out.
        if taken and not (isinstance(value, DeclaredStep) and value.function is earlier):
            self._refuse(name, earlier, value)
        super().__setitem__(name, value)

    def _refuse(self, name: str, earlier: Any, value: Any) -> None:
        owner = f"{self.get('__module__', '?')}.{self.get('__qualname__', '?')}"
        declared = value if isinstance(value, DECLARED) else earlier
        place = Place(owner, name, declared.location)
        first = f" (first at {earlier.location})" if hasattr(earlier, "location") else ""
        raise place.error(f"the name is taken twice in this class body{first}. Rename one of the two.")
