"""A JSON field whose values come back equal from every database, and its form field."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.fields.json import KeyTransform
from django.forms.fields import InvalidJSONInput

from geneva_drive import serialization
from geneva_drive.exceptions import PayloadError
from geneva_drive.models import columns
from geneva_drive.models.fields.keys import StablePath

_STORED = "$stored"


class JSONColumn(StablePath, models.JSONField):
    """A ``JSONField`` for the types of `geneva_drive.serialization`.

    ``jsonb`` on PostgreSQL, ``json`` on MySQL, text without a CHECK on MariaDB and SQLite. The real column
    decides how a value is written and read, so a text column works too. None is NULL.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        if columns.is_mariadb(connection):
            return "longtext"  # json is an alias there that adds a CHECK named after the column
        return super().db_type(connection)

    def db_check(self, _connection: BaseDatabaseWrapper) -> str | None:
        return None

    def _storage(self, connection: BaseDatabaseWrapper) -> str:
        model = getattr(self, "model", None)
        if model is None:  # an expression's output
            return "jsonb" if connection.vendor == "postgresql" else "text"
        return columns.json_storage(connection, model._meta.db_table, self.column or "")

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        if isinstance(value, serialization.Unreadable) and isinstance(value.raw, str):
            return value.raw  # text that is not JSON, in a text column: written back unchanged
        plain = serialization.encode(value, what=self.name or "value")
        if self._storage(connection) in ("json", "jsonb") and connection.vendor == "postgresql":
            return super().get_db_prep_value(plain, connection, prepared)
        return serialization.to_text(plain)

    def get_db_converters(self, connection: BaseDatabaseWrapper) -> list[Any]:
        # Django's psycopg setup returns json, unlike jsonb, parsed: its strings must not be parsed again.
        parsed = connection.vendor == "postgresql" and self._storage(connection) == "json"
        return [_decode if parsed else _load]

    def validate(self, value: Any, model_instance: models.Model | None) -> None:
        super(models.JSONField, self).validate(value, model_instance)
        try:
            serialization.encode(value, what=self.name or "value")
        except PayloadError as error:
            raise ValidationError(str(error), code="invalid") from error

    def formfield(self, **kwargs: Any) -> Any:
        return super().formfield(**{"form_class": JSONColumnFormField, **kwargs})

    # Fixtures: a value that is not plain JSON is wrapped.

    def value_to_string(self, obj: models.Model) -> Any:
        plain = serialization.encode(self.value_from_object(obj))
        return {_STORED: plain} if serialization.has_tags(plain) else plain

    def to_python(self, value: Any) -> Any:
        if isinstance(value, dict) and list(value) == [_STORED]:
            return serialization.decode(value[_STORED])
        return value


def _load(value: Any, expression: Any, _connection: BaseDatabaseWrapper) -> Any:
    if not isinstance(value, str | bytes):
        return serialization.decode(value)
    loaded = serialization.loads(value)
    if isinstance(expression, KeyTransform) and isinstance(loaded, serialization.Unreadable):
        return value  # SQLite returns a key of the JSON as plain text
    return loaded


def _decode(value: Any, _expression: Any, _connection: BaseDatabaseWrapper) -> Any:
    return serialization.decode(value)


class JSONColumnFormField(forms.JSONField):
    """Shows and accepts the stored JSON, so that saving an unchanged form changes nothing."""

    def to_python(self, value: Any) -> Any:
        if self.disabled or value in self.empty_values or not isinstance(value, str):
            return None if isinstance(value, str) and not value else value
        try:
            return _parse(value)
        except PayloadError as error:
            raise ValidationError(
                self.error_messages["invalid"], code="invalid", params={"value": value}
            ) from error

    def bound_data(self, data: Any, initial: Any) -> Any:
        if self.disabled:
            return initial
        try:
            return None if data is None else _parse(data)
        except PayloadError:
            return InvalidJSONInput(data)

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, InvalidJSONInput):
            return value
        if isinstance(value, serialization.Unreadable) and isinstance(value.raw, str):
            return InvalidJSONInput(value.raw)
        return json.dumps(serialization.encode(value), ensure_ascii=False)

    def has_changed(self, initial: Any, data: Any) -> bool:
        if self.disabled:
            return False
        try:
            given = serialization.dumps(self.to_python(data))
        except (ValidationError, PayloadError):
            return True
        return bool(given != serialization.dumps(initial))


def _parse(text: str) -> Any:
    value = serialization.loads(text, strict=True)
    serialization.encode(value)  # it may be JSON that a database cannot store
    return value
