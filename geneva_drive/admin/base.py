"""What every page of the admin asks of it: permissions, addresses, and the frame of a page."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import django
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.forms import Media
from django.http import Http404, HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from geneva_drive.admin.forms import editor_media
from geneva_drive.models.workflow import Workflow


class PagesAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows are looked at, never edited: Django's add, change and delete permissions grant nothing."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        # Not Django's "may change, so may view": change grants nothing here.
        return self.may(request, "view_workflow")

    def may(self, request: HttpRequest, permission: str) -> bool:
        return bool(request.user.has_perm(f"geneva_drive.{permission}"))

    def require(self, request: HttpRequest, permission: str = "view_workflow") -> None:
        """Answer 403 to a user without the permission to view and this one."""
        if not self.has_view_permission(request) or not self.may(request, permission):
            raise PermissionDenied

    def find(self, request: HttpRequest, object_id: str) -> Workflow:
        """Return the workflow of a page, or answer 403 or 404."""
        self.require(request)
        workflow: Workflow | None = self.get_object(request, unquote(object_id))
        if workflow is None:
            raise Http404(_("There is no workflow %(id)s.") % {"id": object_id})
        return workflow

    def alias(self, request: HttpRequest) -> str:
        """Return the database that this admin reads."""
        return str(self.get_queryset(request).db)

    def url(self, name: str, *arguments: Any) -> str:
        return reverse(f"{self.admin_site.name}:geneva_drive_{name}", args=arguments)

    def url_of(self, workflow: Workflow) -> str:
        return self.url("workflow_change", workflow.pk)

    def list_url(self, query: str = "", **filters: Any) -> str:
        """Return the address of the list, with a query string or with these filters."""
        asked = query or urlencode(filters)
        return self.url("workflow_changelist") + (f"?{asked}" if asked else "")

    def page(self, request: HttpRequest, template: str, title: str, **context: Any) -> TemplateResponse:
        # The templates' links take their namespace from it, also on a site with a name of its own.
        request.current_app = self.admin_site.name
        everywhere = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.opts,
            "media": self.media + editor_media() + Media(js=["geneva_drive/place.js"]),
            # Django's stylesheet for breadcrumbs is made for a list from 6.1 on.
            "crumbs_in_list": django.VERSION >= (6, 1),
            "is_nav_sidebar_enabled": False,  # the tables need the room
        }
        return TemplateResponse(request, f"geneva_drive/admin/{template}.html", {**everywhere, **context})
