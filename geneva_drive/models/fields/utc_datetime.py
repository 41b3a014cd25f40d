"""A datetime field that stores UTC, whatever USE_TZ is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from geneva_drive.models.fields.keys import StablePath


class UTCDateTimeField(StablePath, models.DateTimeField):  # type: ignore[type-arg]
    """A ``DateTimeField`` whose column holds UTC, so that differences are elapsed time.

    With ``USE_TZ`` on it behaves like a ``DateTimeField``. With ``USE_TZ`` off Django would write local time,
    in which one hour in autumn is ambiguous; here attributes are naive local time with ``fold``, and the column
    is UTC. Aware values are accepted too. Date parts in look-ups (``__date``, ``__hour``) are in UTC then.
    """

    def get_prep_value(self, value: Any) -> Any:
        value = super().get_prep_value(value)
        if isinstance(value, datetime) and timezone.is_naive(value):
            value = value.replace(tzinfo=timezone.get_default_timezone())
        return value

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        if not prepared:
            value = self.get_prep_value(value)
        if isinstance(value, datetime) and timezone.is_aware(value):
            value = value.astimezone(UTC)
            if connection.vendor != "postgresql":  # timestamptz is exact
                return connection.ops.adapt_datetimefield_value(value.replace(tzinfo=None))
        return connection.ops.adapt_datetimefield_value(value)

    def from_db_value(self, value: Any, _expression: Any, connection: BaseDatabaseWrapper) -> Any:
        if not isinstance(value, datetime):
            return value
        if connection.vendor == "postgresql":
            return value  # the driver converts it to the session's zone, with fold
        value = value.replace(tzinfo=UTC)
        if settings.USE_TZ:
            return value
        return timezone.make_naive(value, timezone.get_default_timezone())
