"""A panel with an object's workflows for the admin of its own model."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.contenttypes.admin import GenericTabularInline
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from geneva_drive import clock
from geneva_drive.admin.presenting import pill, relative
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports import explain

__all__ = ["WorkflowInline"]


class WorkflowInline(GenericTabularInline):  # type: ignore[type-arg]
    """Add it to ``inlines`` of your model's admin: its latest workflows, why they are where they are, and links.

    What can be done to one is done on its own page, by those who have the permission.
    """

    model = Workflow
    ct_field = "hero_type"
    ct_fk_field = "hero_id"
    fields = ("shown_workflow", "shown_state", "shown_why", "shown_started")
    readonly_fields = fields
    extra = 0
    can_delete = False
    verbose_name_plural = _("workflows")
    template = "geneva_drive/admin/workflow_inline.html"
    most = 20
    """How many are shown, the newest first."""

    class Media:
        css = {"all": ["geneva_drive/workflows.css"]}

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer("ongoing_key").order_by("-pk")

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        formset = super().get_formset(request, obj, **kwargs)
        most = self.most

        class Newest(formset):  # type: ignore[misc, valid-type]
            def get_queryset(self) -> Any:
                if not hasattr(self, "_newest"):
                    self._newest = list(super().get_queryset()[:most])
                return self._newest

        return Newest

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return bool(request.user.has_perm("geneva_drive.view_workflow"))

    @admin.display(description=_("workflow"))
    def shown_workflow(self, workflow: Workflow) -> str:
        text = f"{workflow.type} {workflow.pk}"
        try:
            url = reverse(f"{self.admin_site.name}:geneva_drive_workflow_change", args=[workflow.pk])
        except NoReverseMatch:
            return text
        return format_html('<a href="{}">{}</a>', url, text)

    @admin.display(description=_("state"))
    def shown_state(self, workflow: Workflow) -> str:
        return pill(workflow.state, workflow.get_state_display())

    @admin.display(description=_("why"))
    def shown_why(self, workflow: Workflow) -> str:
        return explain(workflow)

    @admin.display(description=_("started"))
    def shown_started(self, workflow: Workflow) -> str:
        return relative(workflow.created_at, clock.now(workflow._state.db))
