"""Stand-ins for stored values: model references that are fetched late, and values that cannot be read."""

from __future__ import annotations

from typing import Any, NoReturn

from django.apps import apps
from django.db.models import Model
from django.utils.functional import SimpleLazyObject

from geneva_drive.exceptions import PayloadError


class ModelReference(SimpleLazyObject):  # type: ignore[type-arg]
    """A model instance that is fetched when it is first used.

    Loading many rows needs no query for each, and a deleted row (``DoesNotExist``) or a model that is not
    installed any more (``LookupError``) raises where it is used. Equal to the instance, accepted wherever one is,
    and written back without a query.
    """

    def __init__(self, label: str, pk: Any, alias: str | None = None) -> None:
        super().__init__(lambda: _fetch(label, pk, alias))
        self.__dict__["_stored"] = (label, pk, alias)

    def __hash__(self) -> int:
        return hash(self.__dict__["_stored"][1])  # as Model does

    def __repr__(self) -> str:
        label, pk, _ = self.__dict__["_stored"]
        return f"<ModelReference: {label} {pk!r}>"

    def __copy__(self) -> ModelReference:
        return ModelReference(*self.__dict__["_stored"])

    def __deepcopy__(self, memo: dict[int, Any]) -> ModelReference:
        return ModelReference(*self.__dict__["_stored"])

    def __reduce__(self) -> tuple[Any, ...]:
        return ModelReference, self.__dict__["_stored"]


def _fetch(label: str, pk: Any, alias: str | None) -> Model:
    # The default manager may hide rows.
    manager = apps.get_model(label)._base_manager
    instance: Model = (manager.using(alias) if alias else manager).get(pk=pk)
    return instance


class _NoSuchAttribute(PayloadError, AttributeError):
    """Also an ``AttributeError``, since Django, copy and pickle probe attributes of any value."""


class Unreadable:
    """A stored value that this code cannot read. Using it raises; writing it back changes nothing.

    It may come from a newer version of this package, or from a manual change. Raising when the row is loaded
    would break whole lists.
    """

    __slots__ = ("raw", "reason")

    raw: Any
    reason: str

    def __init__(self, raw: Any, reason: str) -> None:
        object.__setattr__(self, "raw", raw)
        object.__setattr__(self, "reason", reason)

    def _refuse(self, *_: Any) -> NoReturn:
        raise PayloadError(self.reason)

    def __getattr__(self, name: str) -> NoReturn:
        raise _NoSuchAttribute(self.reason)

    __getitem__ = __setitem__ = __delitem__ = __setattr__ = __iter__ = __len__ = __contains__ = _refuse
    __bool__ = __int__ = __float__ = __index__ = __call__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unreadable) and bool(other.raw == self.raw)

    def __hash__(self) -> int:
        return hash(repr(self.raw))

    def __reduce__(self) -> tuple[Any, ...]:
        return Unreadable, (self.raw, self.reason)

    def __repr__(self) -> str:
        return f"<Unreadable: {self.reason}>"


def find_unreadable(value: Any) -> Unreadable | None:
    """Return the first part of a value that cannot be read, or None."""
    # type(), since isinstance() would fetch the row of a reference.
    if type(value) is Unreadable:
        return value
    if type(value) is dict:
        value = value.values()
    elif type(value) not in (list, tuple, set):
        return None
    return next((found for item in value if (found := find_unreadable(item)) is not None), None)
