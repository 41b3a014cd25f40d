"""Heroes with keys of every kind.

Each names its app, since the classes are imported before the app is installed; and its manager, which
type checkers know of installed apps alone.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models

from geneva_drive import WorkflowRelation


class IntegerHero(models.Model):
    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=50, default="")

    workflows = WorkflowRelation()

    objects: ClassVar[models.Manager[IntegerHero]] = models.Manager()

    class Meta:
        app_label = "columnsapp"

    def __str__(self) -> str:
        return f"integer {self.pk}"


class UUIDHero(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    name = models.CharField(max_length=50, default="")

    workflows = WorkflowRelation()

    objects: ClassVar[models.Manager[UUIDHero]] = models.Manager()

    class Meta:
        app_label = "columnsapp"

    def __str__(self) -> str:
        return f"uuid {self.pk}"


class TextHero(models.Model):
    # Not the collation of the workflow table's own column: that of an ordinary project.
    id = models.CharField(primary_key=True, max_length=255)
    name = models.CharField(max_length=50, default="")

    workflows = WorkflowRelation(related_query_name="text_hero")

    objects: ClassVar[models.Manager[TextHero]] = models.Manager()

    class Meta:
        app_label = "columnsapp"

    def __str__(self) -> str:
        return f"text {self.pk}"


class ChildHero(UUIDHero):
    """Its key is a link to its parent's."""

    extra = models.CharField(max_length=50, default="")

    objects: ClassVar[models.Manager[ChildHero]] = models.Manager()

    class Meta:
        app_label = "columnsapp"
