"""The field classes of the tables. Migrations name them from here."""

from __future__ import annotations

from geneva_drive.models.fields.hero_key import HeroKeyField
from geneva_drive.models.fields.json import JSONColumn
from geneva_drive.models.fields.keys import (
    GeneratedKey,
    IdentifierField,
    active_workflow_field,
    ongoing_key_field,
    primary_key,
    uuid7,
)
from geneva_drive.models.fields.utc_datetime import UTCDateTimeField

__all__ = [
    "GeneratedKey",
    "HeroKeyField",
    "IdentifierField",
    "JSONColumn",
    "UTCDateTimeField",
    "active_workflow_field",
    "ongoing_key_field",
    "primary_key",
    "uuid7",
]
