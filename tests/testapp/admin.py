"""The heroes' own admin, with the panel of their workflows."""

from __future__ import annotations

from django.contrib import admin

from geneva_drive.admin import WorkflowInline
from tests.testapp.models import Order


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    inlines = [WorkflowInline]
