"""Text that identifies: case and trailing spaces count, on every database."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from geneva_drive.models.introspection import is_mariadb

__all__ = ["IdentifierField", "StablePath"]


class StablePath:
    """Mixin: migrations name ``geneva_drive.models.fields``, wherever the class is kept."""

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        name, _, args, kwargs = super().deconstruct()  # type: ignore[misc]
        return name, f"geneva_drive.models.fields.{type(self).__qualname__}", args, kwargs


class IdentifierField(StablePath, models.CharField):  # type: ignore[type-arg]
    """A ``CharField`` that tells "Abc", "ABC" and "Abc " apart.

    SQLite and PostgreSQL do so already. The default collations of MySQL and MariaDB do not, and
    ``utf8mb4_bin`` pads with spaces. The collation is no argument of the field, so that migrations
    are the same for every database; a generated column inherits it from its ``output_field``.
    """

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        parameters = super().db_parameters(connection)
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_nopad_bin" if is_mariadb(connection) else "utf8mb4_0900_bin"
        return parameters
