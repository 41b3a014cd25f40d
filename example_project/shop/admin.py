"""Orders in the admin, with the state of their workflows."""

from __future__ import annotations

from django.contrib import admin

from example_project.shop.models import Order
from geneva_drive import Workflow
from geneva_drive.admin import WorkflowInline


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # cannot be subscripted at run time
    list_display = ["__str__", "total", "paid", "tracking", "withdrawn", "fulfilment"]
    list_filter = ["withdrawn"]
    search_fields = ["customer", "email"]
    inlines = [WorkflowInline]

    @admin.display(description="fulfilment")
    def fulfilment(self, order: Order) -> str:
        workflow: Workflow | None = order.workflows.order_by("-pk").first()
        if workflow is None:
            return "not started"
        at = f" at {workflow.next_step_name}" if workflow.next_step_name else ""
        return f"{workflow.get_state_display()}{at}"
