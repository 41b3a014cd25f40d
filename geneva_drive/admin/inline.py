"""A panel for the admin of your own model, with an object's workflows."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.contenttypes.admin import GenericTabularInline
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext_lazy as _

from geneva_drive.admin.actions import ACTIONS, Action
from geneva_drive.admin.display import ViewOnly, type_name
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.explain import explain


class WorkflowInline(ViewOnly, GenericTabularInline):
    """Add it to ``inlines`` of your model's admin.

    It shows the object's latest workflows, why each is where it is, and the actions that the user may take.
    """

    model = Workflow
    ct_field = "hero_type"
    ct_fk_field = "hero_id"
    fields = ("shown_workflow", "shown_state", "shown_why", "shown_started", "shown_actions")
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
        permitted = [each for each in ACTIONS if self.may(request, each.permission)]
        here = request.get_full_path()

        class Newest(formset):  # type: ignore[misc, valid-type]
            def get_queryset(self) -> Any:
                if not hasattr(self, "_newest"):
                    self._newest = list(super().get_queryset()[:most])
                    _offer(self._newest, permitted, here)
                return self._newest

        return Newest

    def _url(self, name: str, *arguments: Any) -> str | None:
        try:
            return reverse(f"{self.admin_site.name}:{name}", args=arguments)
        except NoReverseMatch:
            return None  # workflows are not registered on this site

    @admin.display(description=_("workflow"))
    def shown_workflow(self, workflow: Workflow) -> str:
        text = f"{type_name(workflow.type)} {workflow.pk}"
        url = self._url("geneva_drive_workflow_change", workflow.pk)
        return text if url is None else format_html('<a href="{}">{}</a>', url, text)

    @admin.display(description=_("why"))
    def shown_why(self, workflow: Workflow) -> str:
        return explain(workflow) if workflow.is_ongoing else "-"

    @admin.display(description=_("actions"))
    def shown_actions(self, workflow: Workflow) -> str:
        links = []
        for action in getattr(workflow, "shown_offers", ()):
            url = self._url("geneva_drive_act", workflow.pk, action.name)
            if url is not None:
                back = urlencode({"next": workflow.shown_here})  # type: ignore[attr-defined]
                links.append((f"{url}?{back}", action.title))
        return format_html_join(" · ", '<a href="{}">{}</a>', links) or "-"


def _offer(workflows: list[Any], permitted: list[Action], here: str) -> None:
    if not workflows or not permitted:
        return
    keys = [each.pk for each in workflows if each.is_ongoing]
    rows = StepExecution.objects.using(workflows[0]._state.db).active().filter(workflow_id__in=keys)
    active = {each.workflow_id: each for each in rows.only("workflow_id", "step_name", "state")}
    for each in workflows:
        each.shown_offers = [action for action in permitted if action.is_offered(each, active.get(each.pk))]
        each.shown_here = here
