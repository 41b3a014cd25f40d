"""The fields of our tables, in one place. Migrations name them from here."""

from __future__ import annotations

from geneva_drive.models import hero_key_lookups as _lookups  # noqa: F401 - registers them
from geneva_drive.models.generated import GeneratedKey, active_workflow_field, ongoing_key_field
from geneva_drive.models.hero_key import HeroKeyField
from geneva_drive.models.identifiers import IdentifierField
from geneva_drive.models.json_column import JSONColumn
from geneva_drive.models.keys import primary_key, uuid7
from geneva_drive.models.utc_datetime import UTCDateTimeField

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
