"""Indexes that are kept small where the database can do so."""

from __future__ import annotations

from typing import Any

from django.db import models

__all__ = ["NotNullIndex"]


class NotNullIndex(models.Index):
    """An index on one column for those few rows that have a value there.

    A condition in the model's ``Meta`` would be left out on MySQL and MariaDB together with the whole index:
    those have no partial ones, and get an index of all rows.
    """

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        (field,) = self.fields
        has_value = models.Q(**{f"{field}__isnull": False})
        partial = schema_editor.connection.features.supports_partial_indexes
        plain = models.Index(fields=[field], name=self.name, condition=has_value if partial else None)
        return plain.create_sql(model, schema_editor, using=using, **kwargs)
