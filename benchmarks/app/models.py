"""A hero for the benchmarks."""

from __future__ import annotations

from django.db import models


class Thing(models.Model):
    """Whatever a workflow runs for."""

    name = models.CharField(max_length=50, default="")

    class Meta:
        app_label = "app"

    def __str__(self) -> str:
        return self.name
