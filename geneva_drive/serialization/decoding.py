"""Decoding: from JSON to values."""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from geneva_drive.exceptions import PayloadError
from geneva_drive.serialization.standins import ModelReference, Unreadable


def loads(stored: str | bytes, *, strict: bool = False) -> Any:
    """Return the value of JSON text. The inverse of `dumps`.

    A part that cannot be read becomes an `Unreadable`; if ``strict``, it raises PayloadError.
    """
    try:
        plain = json.loads(stored)
    except (ValueError, RecursionError) as error:
        return _unreadable(stored, f"A stored value is not JSON ({error}): {stored[:100]!r}", strict)
    return decode(plain, strict=strict)


def decode(plain: Any, *, strict: bool = False) -> Any:
    """Return the value of JSON's types. The inverse of `encode`. ``strict`` as for `loads`."""
    if isinstance(plain, list):
        return [decode(item, strict=strict) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if len(plain) == 1:
        ((tag, content),) = plain.items()
        if tag.startswith("$"):
            return _decode_tag(tag, content, strict)
    return {key: decode(item, strict=strict) for key, item in plain.items()}


def _unreadable(raw: Any, reason: str, strict: bool) -> Unreadable:
    if strict:
        raise PayloadError(reason)
    return Unreadable(raw, reason)


def _decode_tag(tag: str, content: Any, strict: bool) -> Any:
    try:
        if tag in _LEAVES:
            return _LEAVES[tag](content)
        if tag in _CONTAINERS:
            return _CONTAINERS[tag](content, strict)
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        if isinstance(error, PayloadError):  # from an inner value
            raise
        reason = f"A stored value of the type {tag!r} cannot be read ({error}): {str(content)[:100]}"
    else:
        reason = f"A stored value has the type {tag!r}, which this version does not know."
    return _unreadable({tag: content}, reason, strict)


def _decode_dict(content: Any, strict: bool) -> dict[str, Any]:
    return {key: decode(item, strict=strict) for key, item in content.items()}


def _split(content: str) -> tuple[str, str]:
    text, suffix = re.fullmatch(r"([^\[]*)(?:\[(.*)\])?", content).groups("")  # type: ignore[union-attr]
    return text, suffix


def _decode_datetime(content: str) -> datetime:
    text, suffix = _split(content)
    value = datetime.fromisoformat(text)
    if suffix == "fold=1":
        return value.replace(fold=1)
    zone = _zone(suffix)
    if zone is None:
        return value
    offset = value.utcoffset()
    for fold in (0, 1):
        local = value.replace(tzinfo=zone, fold=fold)
        if local.utcoffset() == offset:
            return local
    # The zone's rules have changed since: keep the moment.
    return value.astimezone(zone)


def _decode_time(content: str) -> time:
    text, suffix = _split(content)
    value = time.fromisoformat(text)
    if suffix == "fold=1":
        return value.replace(fold=1)
    zone = _zone(suffix)
    return value if zone is None else value.replace(tzinfo=zone)


def _zone(key: str) -> tzinfo | None:
    if not key:
        return None
    try:
        return ZoneInfo(key)
    except ZoneInfoNotFoundError:
        return None  # not installed on this host: the offset gives the moment


def _decode_timedelta(content: Any) -> timedelta:
    days, seconds, microseconds = content
    return timedelta(days, seconds, microseconds)


def _decode_model(content: Any, strict: bool) -> ModelReference:
    label, pk, *alias = content
    return ModelReference(label, decode(pk, strict=strict), *alias)


_LEAVES: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$datetime": _decode_datetime,
    "$date": date.fromisoformat,
    "$time": _decode_time,
    "$timedelta": _decode_timedelta,
    "$decimal": Decimal,
    "$uuid": uuid.UUID,
    "$bytes": lambda content: base64.b64decode(content, validate=True),
}

_CONTAINERS: dict[str, Callable[[Any, bool], Any]] = {
    "$dict": _decode_dict,
    "$tuple": lambda content, strict: tuple(decode(content, strict=strict)),
    "$set": lambda content, strict: set(decode(content, strict=strict)),
    "$model": _decode_model,
}
