"""Stored generated columns: how both guarantees are held by the database itself.

Django leaves conditional unique constraints out on MySQL and MariaDB, without an error. A generated
column that is NULL where the condition does not hold, with a plain unique constraint on it, works on
all four databases.
"""

from __future__ import annotations

from typing import Any

from django.db.models import (
    BigIntegerField,
    Case,
    CharField,
    F,
    Field,
    GeneratedField,
    Q,
    UUIDField,
    Value,
    When,
)
from django.db.models.functions import Cast, Concat

from geneva_drive.conf import settings
from geneva_drive.models.columns import STRING_LENGTH
from geneva_drive.models.identifiers import IdentifierField, StablePath
from geneva_drive.states import ACTIVE, ONGOING

__all__ = ["GeneratedKey", "TYPE_LENGTH", "active_workflow_field", "ongoing_key_field"]

TYPE_LENGTH = 150
"""Characters of ``app_label.ClassName``."""

_CONTENT_TYPE_LENGTH = 11  # digits of a 32-bit integer, with its sign

ONGOING_KEY_LENGTH = TYPE_LENGTH + 1 + _CONTENT_TYPE_LENGTH + 1 + STRING_LENGTH


class GeneratedKey(StablePath, GeneratedField):
    """A stored ``GeneratedField`` that ``check`` and ``makemigrations`` accept without a server.

    Under Django 6.1 a plain one asks PostgreSQL for its version. All four databases that this
    package supports have stored generated columns.
    """

    def _check_supported(self, _databases: Any) -> list[Any]:
        return []


def ongoing_key_field() -> GeneratedKey:
    """Make ``Workflow.ongoing_key``: the text "type|content type|hero" while the hero's slot is held.

    NULL for ended workflows, for those without a hero, and for those that allow others beside them.
    """
    return GeneratedKey(
        expression=Case(
            When(
                # hero_id is asked for by itself: Concat makes an empty string of NULL.
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
    """Make ``StepExecution.active_workflow``: the workflow's key while the execution is active."""
    output_field: Field[Any, Any] = UUIDField() if settings.KEY_TYPE == "uuid" else BigIntegerField()
    return GeneratedKey(
        expression=Case(
            When(Q(state__in=[str(state) for state in ACTIVE]), then=F("workflow_id")),
            default=None,
        ),
        output_field=output_field,
        db_persist=True,
        null=True,
    )
