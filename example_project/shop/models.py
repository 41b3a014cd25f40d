"""Orders and newsletter subscribers."""

from __future__ import annotations

from django.db import models

from geneva_drive import WorkflowRelation


class Order(models.Model):
    """An order. It is the hero of a `Fulfilment`, that is, the object that the workflow is about."""

    customer = models.CharField(max_length=100)
    email = models.EmailField(blank=True)
    address = models.TextField(blank=True)
    total = models.DecimalField(max_digits=10, decimal_places=2)
    paid = models.DecimalField(max_digits=10, decimal_places=2, default=0)
    withdrawn = models.BooleanField(default=False)
    tracking = models.CharField(max_length=50, blank=True)
    placed_at = models.DateTimeField(auto_now_add=True)

    objects: models.Manager[Order] = models.Manager()
    workflows = WorkflowRelation()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"order {self.pk} of {self.customer}"


class Subscriber(models.Model):
    """A subscriber of the newsletter."""

    email = models.EmailField(unique=True)
    letters = models.PositiveIntegerField(default=0)

    objects: models.Manager[Subscriber] = models.Manager()

    class Meta:
        ordering = ["email"]

    def __str__(self) -> str:
        return self.email
