"""Heroes of the tests."""

from __future__ import annotations

import uuid

from django.db import models

from geneva_drive import WorkflowRelation


class Order(models.Model):
    """A hero with an integer key."""

    number = models.CharField(max_length=50, default="")
    withdrawn = models.BooleanField(default=False)
    log = models.JSONField(default=list)

    workflows = WorkflowRelation()

    def __str__(self) -> str:
        return f"order {self.pk}"


class Ticket(models.Model):
    """A hero with a UUID key."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)

    def __str__(self) -> str:
        return f"ticket {self.pk}"


class Effect(models.Model):
    """What a step did: one row each time that its body ran."""

    workflow = models.CharField(max_length=64)
    step = models.CharField(max_length=100)
    note = models.CharField(max_length=100, default="")

    def __str__(self) -> str:
        return f"{self.step} of {self.workflow}"


class Item(models.Model):
    """Something to loop over, with columns of every kind to go along."""

    order = models.ForeignKey(Order, null=True, on_delete=models.CASCADE, related_name="items")
    code = models.CharField(max_length=50, unique=True)
    label = models.CharField(max_length=50, null=True)
    rank = models.IntegerField(null=True)
    price = models.DecimalField(max_digits=8, decimal_places=2, default=0)
    made_at = models.DateTimeField(null=True)
    sent = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"item {self.code}"


class Pair(models.Model):
    """A row whose key is two columns."""

    pk = models.CompositePrimaryKey("left", "right")
    left = models.IntegerField()
    right = models.CharField(max_length=10)

    def __str__(self) -> str:
        return f"{self.left}/{self.right}"
