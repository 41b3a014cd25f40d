"""Identifiers, primary keys, and the generated columns behind the unique constraints."""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, CharField, F, Q, Value, When
from django.db.models.functions import Cast, Concat

from geneva_drive.conf import settings
from geneva_drive.models.columns import STRING_LENGTH, is_mariadb
from geneva_drive.states import ACTIVE, ONGOING


class StablePath:
    """Mixin: migrations name ``geneva_drive.models.fields``, whichever module has the class."""

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        name, _, args, kwargs = super().deconstruct()  # type: ignore[misc]
        return name, f"geneva_drive.models.fields.{type(self).__qualname__}", args, kwargs


class IdentifierField(StablePath, models.CharField):  # type: ignore[type-arg]
    """A ``CharField`` in which "Abc", "ABC" and "Abc " differ on every database.

    The default collations of MySQL and MariaDB do not distinguish them, and ``utf8mb4_bin`` pads with spaces.
    The collation is not an argument of the field, so that migrations are the same for every database; a
    generated column inherits it from its ``output_field``. Neither are the choices, which no database knows.
    """

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        kwargs.pop("choices", None)
        return name, path, args, kwargs

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        parameters = super().db_parameters(connection)
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_nopad_bin" if is_mariadb(connection) else "utf8mb4_0900_bin"
        return parameters


_lock = threading.Lock()
_last_millisecond = 0
_counter = 0

_COUNTER_BITS = 42


def _own_uuid7() -> uuid.UUID:
    """Return a UUID of version 7 (RFC 9562, method 1), ordered by time and, within a process, by call."""
    global _last_millisecond, _counter
    random = int.from_bytes(os.urandom(10))
    with _lock:
        millisecond = time.time_ns() // 1_000_000
        if millisecond > _last_millisecond:
            # The highest bit is left clear, so that the counter has room to count up.
            _last_millisecond, _counter = millisecond, random >> 32 & (1 << _COUNTER_BITS - 1) - 1
        else:  # the same millisecond, or the clock was set back
            _counter += 1
            if _counter >> _COUNTER_BITS:
                _last_millisecond, _counter = _last_millisecond + 1, 0
        millisecond, counter = _last_millisecond, _counter
    value = (millisecond & (1 << 48) - 1) << 80 | 0x7 << 76
    value |= (counter >> 30) << 64 | 0b10 << 62 | (counter & (1 << 30) - 1) << 32
    return uuid.UUID(int=value | random & (1 << 32) - 1)


def uuid7() -> uuid.UUID:
    """Return a UUID in the order of creation, which keeps the index of a big table compact."""
    return getattr(uuid, "uuid7", _own_uuid7)()  # in the standard library from Python 3.14


def primary_key() -> models.Field[Any, Any]:
    """Return a primary key field of the type that the setting KEY_TYPE names, read at import.

    The migrations call this function too, so that models and migrations agree.
    """
    if settings.KEY_TYPE == "bigint":
        return models.BigAutoField(primary_key=True, serialize=False)
    if settings.KEY_TYPE == "uuid":
        # serialize=False as Django itself sets for a primary key in migrations.
        return models.UUIDField(primary_key=True, default=uuid7, serialize=False, editable=False)
    raise ImproperlyConfigured(f"GENEVA_DRIVE['KEY_TYPE'] is {settings.KEY_TYPE!r}. Use 'bigint' or 'uuid'.")


TYPE_LENGTH = 150
"""Characters of ``app_label.ClassName``."""

_CONTENT_TYPE_LENGTH = 11  # digits of a 32-bit integer, with its sign

ONGOING_KEY_LENGTH = TYPE_LENGTH + 1 + _CONTENT_TYPE_LENGTH + 1 + STRING_LENGTH


class GeneratedKey(StablePath, models.GeneratedField):
    """A stored ``GeneratedField`` that ``check`` and ``makemigrations`` accept without a server.

    Django 6.1 asks PostgreSQL for its version. All four supported databases have stored generated columns.
    """

    def _check_supported(self, _databases: Any) -> list[Any]:
        return []


def ongoing_key_field() -> GeneratedKey:
    """Return ``Workflow.ongoing_key``: "type|content type|hero" while the workflow holds its hero's slot.

    NULL for workflows that have ended, have no hero, or were started with ``allow_multiple``.
    """
    return GeneratedKey(
        expression=Case(
            When(
                # hero_id is checked separately: Concat turns NULL into an empty string.
                Q(state__in=[str(state) for state in ONGOING], allow_multiple=False, hero_id__isnull=False),
                then=Concat(
                    F("type"),
                    Value("|"),
                    Cast("hero_type_id", CharField(max_length=_CONTENT_TYPE_LENGTH)),
                    Value("|"),
                    Cast("hero_id", CharField(max_length=STRING_LENGTH)),
                ),
            ),
            default=None,
        ),
        output_field=IdentifierField(max_length=ONGOING_KEY_LENGTH),
        db_persist=True,
        null=True,
    )


def active_workflow_field() -> GeneratedKey:
    """Return ``StepExecution.active_workflow``: the workflow's key while the execution is active."""
    uuids = settings.KEY_TYPE == "uuid"
    return GeneratedKey(
        expression=Case(
            When(Q(state__in=[str(state) for state in ACTIVE]), then=F("workflow_id")),
            default=None,
        ),
        output_field=models.UUIDField() if uuids else models.BigIntegerField(),
        db_persist=True,
        null=True,
    )
