"""Encoding: from values to JSON."""

from __future__ import annotations

import base64
import json
import math
import re
import uuid
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django.db import router
from django.db.models import Model

from geneva_drive.exceptions import PayloadError, PayloadTooLargeError
from geneva_drive.serialization.standins import ModelReference, Unreadable

MAX_DEPTH = 100
"""Levels of nested JSON, including the innermost value. MySQL's limit is one more."""

MAX_KEY_BYTES = 65535
"""Bytes of a key in UTF-8: MySQL's limit."""

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
# PostgreSQL cannot store these in jsonb.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class _Refused(Exception):
    """Carries the reason up through the containers; each adds its part of the path, innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path: list[str] = []


def dumps(value: Any, *, limit: int | None = None, what: str = "value") -> str:
    """Return a value as JSON text, in ASCII.

    Parameters
    ----------
    limit
        The most bytes of the text. None: no limit.
    what
        What messages call the value, such as "payload".

    Raises
    ------
    PayloadError
        The value cannot be stored. The message has the path inside the value.
    PayloadTooLargeError
        The text is longer than the limit.
    """
    text = to_text(encode(value, what=what))
    if limit is not None and len(text) > limit:
        raise PayloadTooLargeError(
            f"{what} takes {len(text)} bytes as JSON, and at most {limit} are allowed. Keep the data in a "
            "model of your own, and a reference to it here."
        )
    return text


def encode(value: Any, *, what: str = "value") -> Any:
    """Return a value as JSON's types. Raises PayloadError, as `dumps` does."""
    try:
        return _encode(value, 1)
    except _Refused as refused:
        reason = f"{what}{''.join(reversed(refused.path))}: {refused}"
    raise PayloadError(reason)


def to_text(plain: Any) -> str:
    """Return the result of `encode` as text."""
    # ASCII fits in a text column of any character set, and its characters are bytes.
    return json.dumps(plain, allow_nan=False, separators=(",", ":"))


def has_tags(plain: Any) -> bool:
    """Whether the result of `encode` differs from the value."""
    if isinstance(plain, dict):
        return _looks_like_tag(plain) or any(has_tags(item) for item in plain.values())
    return isinstance(plain, list) and any(has_tags(item) for item in plain)


def _looks_like_tag(mapping: dict[str, Any]) -> bool:
    return len(mapping) == 1 and next(iter(mapping)).startswith("$")


def _encode(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise _Refused(f"is nested deeper than {MAX_DEPTH} levels, which MySQL cannot hold")
    if value is None or value is True or value is False:
        return value
    for cls in type(value).__mro__:
        if cls in _LEAVES:
            return _LEAVES[cls](value)
        if cls in _CONTAINERS:
            return _CONTAINERS[cls](value, depth)
    if isinstance(value, Model):  # by __class__, which includes lazy objects such as request.user
        return _encode_model(value, depth)
    raise _Refused(f"{type(value).__qualname__} cannot be stored")


def _part(key: object) -> str:
    return f"[{key!r}]" if len(repr(key)) < 80 else f"[{repr(key)[:77]}...]"


def _encode_items(items: Iterable[tuple[Any, Any]], depth: int) -> Iterable[Any]:
    for key, item in items:
        try:
            yield _encode(item, depth)
        except _Refused as refused:
            refused.path.append(_part(key))
            raise


def _encode_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    keys = []
    for key in value:
        if not isinstance(key, str):
            raise _Refused(f"the key {key!r} is not a string, and JSON has no others")
        try:
            keys.append(_encode_str(key))
        except _Refused as refused:
            raise _Refused(f"the key {_part(key)} {refused}") from None
        if len(key.encode()) > MAX_KEY_BYTES:
            raise _Refused(f"a key is longer than {MAX_KEY_BYTES} bytes, which MySQL cannot hold")
    escaped = len(keys) == 1 and keys[0].startswith("$")
    encoded = dict(zip(keys, _encode_items(value.items(), depth + 1 + escaped), strict=True))
    return {"$dict": encoded} if escaped else encoded


def _encode_list(value: list[Any], depth: int) -> list[Any]:
    return list(_encode_items(enumerate(value), depth + 1))


def _encode_tuple(value: tuple[Any, ...], depth: int) -> Any:
    if hasattr(value, "_fields"):
        raise _Refused("a named tuple would come back without its names. Use its _asdict()")
    return {"$tuple": list(_encode_items(enumerate(value), depth + 2))}


def _encode_set(value: set[Any], depth: int) -> Any:
    # Sorted, so that equal sets give the same text.
    return {"$set": sorted(_encode_items(((item, item) for item in value), depth + 2), key=to_text)}


def _encode_str(value: str) -> str:
    found = _UNSTORABLE.search(value)
    if found:
        kind = "NUL" if found[0] == "\0" else "a lone surrogate"
        raise _Refused(f"holds {kind} (at character {found.start()}), which PostgreSQL cannot store")
    return str.__str__(value)  # exact, also of a subclass


def _encode_int(value: int) -> int:
    plain = int.__pos__(value)  # of a subclass, too
    if not _SMALLEST <= plain <= _LARGEST:
        raise _Refused("the integer is beyond 64 bits with sign. Store it as text")
    return plain


def _encode_float(value: float) -> Any:
    if not math.isfinite(value):
        raise _Refused(f"{value!r} is not JSON")
    text = float.__repr__(value)
    # PostgreSQL would return 1e+22 as an integer, and drop the sign of -0.0.
    return {"$float": text} if "e" in text or text == "-0.0" else float(value)


def _zone(value: tzinfo | None) -> str:
    # The offset is not enough in the ambiguous hour in autumn, where a time does not equal another zone's.
    return f"[{value.key}]" if isinstance(value, ZoneInfo) and value.key else ""


def _encode_datetime(value: datetime) -> Any:
    fold = "[fold=1]" if value.tzinfo is None and value.fold else ""
    return {"$datetime": datetime.isoformat(value) + _zone(value.tzinfo) + fold}


def _encode_time(value: time) -> Any:
    fold = "[fold=1]" if value.tzinfo is None and value.fold else ""
    return {"$time": time.isoformat(value) + _zone(value.tzinfo) + fold}


def _encode_decimal(value: Decimal) -> Any:
    if not value.is_finite():
        raise _Refused(f"{value!r} is not a number")
    return {"$decimal": Decimal.__str__(value)}


def _encode_model(value: Model, depth: int) -> Any:
    if value.pk is None or value._state.adding:
        raise _Refused(f"the {value._meta.label} is not saved yet, so there is no row to refer to")
    meta = value._meta
    if meta.proxy and meta.auto_created:  # a workflow class: its row is the base's
        meta = meta.concrete_model._meta  # type: ignore[union-attr]
    alias = value._state.db
    # Without an alias where the routers find the model, so that the alias may be renamed.
    known = alias is None or alias in (router.db_for_write(type(value)), router.db_for_read(type(value)))
    return {"$model": [meta.label_lower, _encode(value.pk, depth + 2), *([] if known else [alias])]}


def _encode_reference(value: ModelReference, depth: int) -> Any:
    label, pk, alias = value.__dict__["_stored"]
    return {"$model": [label, _encode(pk, depth + 2), *([alias] if alias else [])]}


_LEAVES: dict[type, Callable[[Any], Any]] = {
    str: _encode_str,
    int: _encode_int,
    float: _encode_float,
    datetime: _encode_datetime,  # before date in every __mro__
    date: lambda value: {"$date": date.isoformat(value)},
    time: _encode_time,
    timedelta: lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    Decimal: _encode_decimal,
    uuid.UUID: lambda value: {"$uuid": uuid.UUID.__str__(value)},
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode()},
    Unreadable: lambda value: value.raw,
}

_CONTAINERS: dict[type, Callable[[Any, int], Any]] = {
    dict: _encode_dict,
    list: _encode_list,
    tuple: _encode_tuple,
    set: _encode_set,
    ModelReference: _encode_reference,
}
