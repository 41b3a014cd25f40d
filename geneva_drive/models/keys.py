"""The keys of our own tables."""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import models

from geneva_drive.conf import settings

__all__ = ["primary_key", "uuid7"]

_lock = threading.Lock()
_last_millisecond = 0
_counter = 0

_COUNTER_BITS = 42


def _own_uuid7() -> uuid.UUID:
    """Make a UUID of version 7 (RFC 9562, method 1): sorted by time, and within one process by call."""
    global _last_millisecond, _counter
    random = int.from_bytes(os.urandom(10))
    with _lock:
        millisecond = time.time_ns() // 1_000_000
        if millisecond > _last_millisecond:
            # The highest bit is left clear, so that the counter has room to count up.
            _last_millisecond, _counter = millisecond, random >> 32 & (1 << _COUNTER_BITS - 1) - 1
        else:  # the same millisecond, or a clock that was set back
            _counter += 1
            if _counter >> _COUNTER_BITS:
                _last_millisecond, _counter = _last_millisecond + 1, 0
        millisecond, counter = _last_millisecond, _counter
    value = (millisecond & (1 << 48) - 1) << 80 | 0x7 << 76
    value |= (counter >> 30) << 64 | 0b10 << 62 | (counter & (1 << 30) - 1) << 32
    return uuid.UUID(int=value | random & (1 << 32) - 1)


def uuid7() -> uuid.UUID:
    """Make a UUID whose order is the order of creation, which keeps the index of a big table compact."""
    return getattr(uuid, "uuid7", _own_uuid7)()  # in the standard library from Python 3.14


def primary_key() -> models.Field[Any, Any]:
    """Make the primary key field of one of our tables, of the type that the setting KEY_TYPE names.

    The setting is read here, which is at import; the migrations call this function too, so that
    models and migrations agree whatever it says.
    """
    if settings.KEY_TYPE == "bigint":
        return models.BigAutoField(primary_key=True, serialize=False)
    if settings.KEY_TYPE == "uuid":
        # serialize=False as Django itself sets for a primary key in migrations.
        return models.UUIDField(primary_key=True, default=uuid7, serialize=False, editable=False)
    raise ImproperlyConfigured(f"GENEVA_DRIVE['KEY_TYPE'] is {settings.KEY_TYPE!r}. Use 'bigint' or 'uuid'.")
