"""The admin of workflows: the list, and the addresses of the other pages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from geneva_drive import clock
from geneva_drive.admin import overview, views
from geneva_drive.admin.actions import ACTIONS, Action
from geneva_drive.admin.changelist import CappedPaginator, WorkflowChangeList
from geneva_drive.admin.display import PagesAdmin, hero_link, pill, type_name, when
from geneva_drive.admin.filters import FILTERS
from geneva_drive.admin.workflow_page import workflow_page
from geneva_drive.definition.registry import registry
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.selection import search
from geneva_drive.reports.wording import activity
from geneva_drive.states import ExecutionState


def _bulk(action: Action) -> Callable[[Any, HttpRequest, Any], HttpResponseBase]:
    """Make an item of the list's menu. It only asks: the answer is another POST."""

    def ask(model_admin: WorkflowAdmin, request: HttpRequest, queryset: Any) -> HttpResponseBase:
        return views.ask_many(model_admin, request, action, queryset)

    ask.__name__ = action.name
    ask.short_description = action.title  # type: ignore[attr-defined]
    return ask


@admin.register(Workflow)
class WorkflowAdmin(PagesAdmin):
    """Register it on a site of your own to have workflows there."""

    list_display = ("shown_workflow", "shown_hero", "shown_state", "shown_step", "shown_due", "shown_started")
    list_display_links = None
    show_facets = admin.ShowFacets.NEVER  # each would count all rows
    list_filter = FILTERS
    list_per_page = 50
    list_max_show_all = 50
    show_full_result_count = False
    paginator = CappedPaginator
    ordering = ("-pk",)
    search_fields = ("pk",)
    search_help_text = _("An id, a hero's key, a hero's model (shop.order), or both (shop.order:42)")
    actions = [_bulk(action) for action in ACTIONS]
    change_list_template = "geneva_drive/admin/workflow_list.html"

    class Media:
        css = {"all": ["geneva_drive/workflows.css"]}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[WorkflowChangeList]:  # noqa: ARG002
        return WorkflowChangeList

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        return rows.defer("metadata", "job_options", "ongoing_key").prefetch_related("hero")

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:  # noqa: ARG002
        return (queryset.filter(search(search_term, queryset.db)) if search_term else queryset), False

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:  # noqa: ARG002
        return self.ordering

    def get_sortable_by(self, request: HttpRequest) -> tuple[()]:  # noqa: ARG002
        # By any other column a million rows would have to be sorted.
        return ()

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        # From Django 6.1 on, the caller says where the menu is, and warns about any other signature.
        options = {} if action_location is None else {"action_location": action_location}
        found = super().get_actions(request, **options)
        allowed = {action.name for action in ACTIONS if self.may(request, action.permission)}
        return {name: what for name, what in found.items() if name in allowed}

    @admin.display(description=_("workflow"))
    def shown_workflow(self, workflow: Workflow) -> str:
        link = format_html(
            '<a href="{}" title="{}">{} {}</a>',
            self.url_of(workflow),
            workflow.type,
            type_name(workflow.type),
            str(workflow.pk),
        )
        if registry.get(workflow.type) is None:
            return format_html("{} {}", link, pill("undeclared", gettext("class undeclared")))
        return link

    @admin.display(description=_("hero"))
    def shown_hero(self, workflow: Workflow) -> str:
        return hero_link(workflow, self.admin_site)

    @admin.display(description=_("step"))
    def shown_step(self, workflow: Workflow) -> str:
        name, error = workflow.next_step_name, getattr(workflow, "shown_error_class", None)
        if name is None:
            return "-"
        parts = [format_html("{}", name)]
        if registry.get(workflow.type) is not None and workflow.steps.resolve(name) is None:
            parts.append(pill("undeclared", gettext("undeclared")))
        if error is not None:
            short = error.rsplit(".", 1)[-1]
            parts.append(format_html('<br><small class="gd-bad" title="{}">{}</small>', error, short))
        return format_html_join(" ", "{}", ((part,) for part in parts))

    @admin.display(description=_("due"))
    def shown_due(self, workflow: Workflow) -> str:
        execution: StepExecution | None = getattr(workflow, "shown_active", None)
        if execution is None:
            return "-"
        now: datetime = workflow.shown_now  # type: ignore[attr-defined]
        if execution.state != ExecutionState.SCHEDULED or execution.on_hold:
            return activity(execution, now)
        is_late = now - clock.utc(execution.scheduled_for) > timedelta(seconds=1)
        return pill("failed", activity(execution, now)) if is_late else when(execution.scheduled_for, now)

    def get_urls(self) -> list[URLPattern]:
        def wrap(view: Callable[..., HttpResponseBase]) -> Any:
            def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
                return view(self, request, *args, **kwargs)

            return self.admin_site.admin_view(wrapped)

        return [
            path("overview/", wrap(overview.overview), name="geneva_drive_overview"),
            path("removed-steps/", wrap(overview.removed_steps), name="geneva_drive_removed_steps"),
            path("start/", wrap(views.start), name="geneva_drive_start"),
            path("many/<str:name>/", wrap(views.act_on_many), name="geneva_drive_act_on_many"),
            path("<path:object_id>/act/<str:name>/", wrap(views.act_on_one), name="geneva_drive_act"),
            *super().get_urls(),
        ]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",  # noqa: ARG002
        extra_context: Any = None,
    ) -> HttpResponse:
        """Show one workflow."""
        workflow = self.find(request, object_id)
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        context = {**workflow_page(self, request, workflow), **(extra_context or {})}
        return self.page(request, "workflow", f"{workflow.type} {workflow.pk}", **context)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        context = {
            "title": gettext("Workflows"),
            "is_nav_sidebar_enabled": False,  # the columns need the room
            "may_start": self.may(request, "start_workflow"),
            **(extra_context or {}),
        }
        return super().changelist_view(request, context)
