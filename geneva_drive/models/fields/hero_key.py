"""The field for the hero's key (integer, UUID or text), and its look-ups."""

from __future__ import annotations

import contextlib
import re
import uuid
from typing import Any

from django.core.exceptions import FieldError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Cast
from django.db.models.lookups import Exact, In
from django.db.models.sql.query import Query

from geneva_drive.exceptions import HeroKeyError
from geneva_drive.models import columns
from geneva_drive.models.fields.keys import IdentifierField, StablePath

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_DECIMAL = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_URN = "urn:uuid:"


def cast_uuid(value: uuid.UUID, connection: BaseDatabaseWrapper) -> str:
    """Return a UUID as text, exactly as that database casts one; otherwise joins would find nothing."""
    return str(value) if connection.features.has_native_uuid_field else value.hex


class HeroKeyField(StablePath, models.Field):  # type: ignore[type-arg]
    """A column for keys of any model: ``bigint``, ``uuid`` or text, the same for all rows.

    The kind is decided when the table is created, by the keys of the installed models or the setting
    HERO_KEY_TYPE; from then on the real column decides. A key that does not fit raises `HeroKeyError`; it is
    never cast or cut.

    Parameters
    ----------
    kind
        A fixed kind ("bigint", "uuid", "string"). For altering the column, not for models.
    """

    description = "The key of an instance of any model"

    def __init__(self, *args: Any, kind: str | None = None, **kwargs: Any) -> None:
        self.kind = kind
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        if self.kind is not None:
            kwargs["kind"] = self.kind
        return name, path, args, kwargs

    def column_on(self, connection: BaseDatabaseWrapper) -> columns.HeroColumn:
        """Return the column on that connection."""
        if self.kind is not None:
            return columns.HeroColumn(self.kind)
        model = getattr(self, "model", None)
        if model is None:
            return columns.hero_column(connection)
        return columns.hero_column(connection, model._meta.db_table, self.column or columns.HERO_KEY_COLUMN)

    def _plain_field(self, connection: BaseDatabaseWrapper) -> models.Field[Any, Any]:
        column = self.column_on(connection)
        if column.kind == "bigint":
            return models.BigIntegerField()
        if column.kind == "uuid":
            return models.UUIDField()
        return IdentifierField(max_length=column.length or columns.STRING_LENGTH)

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        return self._plain_field(connection).db_type(connection)

    def cast_db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        return self._plain_field(connection).cast_db_type(connection)

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        return self._plain_field(connection).db_parameters(connection)

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        if value is None or hasattr(value, "as_sql"):
            return value
        return self._to_column(value, connection)

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:  # noqa: ARG002
        """Prepare a value for a look-up. The text of a key is accepted, since URLs and forms have text."""
        if value is None:
            return None
        kind = self.column_on(connection).kind
        if isinstance(value, str) and kind == "bigint" and _DECIMAL.fullmatch(value):
            value = int(value)
        elif isinstance(value, str) and kind == "uuid":
            with contextlib.suppress(ValueError):
                value = uuid.UUID(value)
        return self._to_column(value, connection)

    def _to_column(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        column = self.column_on(connection)
        if column.kind == "bigint":
            if isinstance(value, int) and not isinstance(value, bool) and _SMALLEST <= value <= _LARGEST:
                return int.__pos__(value)  # of a subclass, too
        elif column.kind == "uuid":
            if isinstance(value, uuid.UUID):
                if column.sql_type is not None and re.match(r"(char|character)\(3[26]\)", column.sql_type):
                    return value.hex if "32" in column.sql_type else str(value)
                return models.UUIDField().get_db_prep_value(value, connection)
        else:
            return self._to_text(value, column, connection)
        raise _misfit(value, f"a {column.kind} column")

    def _to_text(self, value: Any, column: columns.HeroColumn, connection: BaseDatabaseWrapper) -> str:
        if isinstance(value, uuid.UUID):
            return cast_uuid(value, connection)
        if isinstance(value, int) and not isinstance(value, bool):
            return int.__repr__(value)
        if not isinstance(value, str):
            raise _misfit(value, "a string column")
        text = str.__str__(value)
        if column.length is not None and len(text) > column.length:
            raise _misfit(value, f"a string column of {column.length} characters")
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise _misfit(value, "a string column: PostgreSQL holds neither NUL nor lone surrogates")
        return text

    def get_db_converters(self, connection: BaseDatabaseWrapper) -> list[Any]:
        # Called once per query, unlike from_db_value, which is called for each row.
        return [_to_uuid] if self.column_on(connection).kind == "uuid" else []

    # Fixtures: JSON has no UUIDs.

    def value_to_string(self, obj: models.Model) -> str:
        value = self.value_from_object(obj)
        return f"{_URN}{value}" if isinstance(value, uuid.UUID) else str(value)

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith(_URN):
            try:
                return uuid.UUID(value)
            except ValueError:
                return value
        return value


def _to_uuid(value: Any, _expression: Any, _connection: BaseDatabaseWrapper) -> Any:
    # Drivers return text where the type is not native, and MariaDB's driver always does.
    return uuid.UUID(value) if isinstance(value, str) else value


def _misfit(value: Any, column: str) -> HeroKeyError:
    return HeroKeyError(
        f"The key {value!r} ({type(value).__name__}) does not fit {column}. "
        "`manage.py geneva_hero_key` shows what was decided and why, and can convert the column."
    )


class _Comparable:
    """Mixin of lookups: both sides as text where their types differ."""

    lhs: Any
    rhs: Any

    def _differs(self, connection: BaseDatabaseWrapper) -> tuple[bool, bool]:
        """Return whether the left and the right side need a cast."""
        if not hasattr(self.rhs, "as_sql"):
            return False, False
        kind = self.lhs.output_field.column_on(connection).kind
        family: str | None = None
        with contextlib.suppress(FieldError, AttributeError):  # an expression without an output field
            field = self.rhs.output_field
            if isinstance(field, HeroKeyField):
                family = columns.FAMILY_OF_KIND[field.column_on(connection).kind]
            else:
                family = columns.field_family(field, connection)
        differs = family != columns.FAMILY_OF_KIND[kind]
        return differs and kind != "string", differs

    def process_lhs(self, compiler: Any, connection: BaseDatabaseWrapper, lhs: Any = None) -> Any:
        sql, params = super().process_lhs(compiler, connection, lhs)  # type: ignore[misc]
        return (_as_text(sql, connection) if self._differs(connection)[0] else sql), params


def _as_text(sql: str, connection: BaseDatabaseWrapper) -> str:
    return f"CAST({sql} AS {models.TextField().cast_db_type(connection)})"


@HeroKeyField.register_lookup
class HeroKeyExact(_Comparable, Exact):
    def process_rhs(self, compiler: Any, connection: BaseDatabaseWrapper) -> Any:
        sql, params = super().process_rhs(compiler, connection)
        return (_as_text(sql, connection) if self._differs(connection)[1] else sql), params


@HeroKeyField.register_lookup
class HeroKeyIn(_Comparable, In):
    def process_rhs(self, compiler: Any, connection: BaseDatabaseWrapper) -> Any:
        if not self._differs(connection)[1] or not isinstance(self.rhs, Query):
            return super().process_rhs(compiler, connection)
        query, self.rhs = self.rhs, _selecting_text(self.rhs)
        try:
            return super().process_rhs(compiler, connection)
        finally:
            self.rhs = query


def _selecting_text(query: Query) -> Query:
    """Return a copy of a subquery of one column, with that column cast to text."""
    copy = query.clone()
    copy.combined_queries = tuple(_selecting_text(part) for part in copy.combined_queries)
    if not copy.combined_queries:
        text = models.TextField()
        copy.select = tuple(Cast(column, text) for column in copy.select)  # type: ignore[arg-type]
        copy.annotations = {
            name: Cast(annotation, text) if name in copy.annotation_select else annotation
            for name, annotation in copy.annotations.items()
        }
    return copy
