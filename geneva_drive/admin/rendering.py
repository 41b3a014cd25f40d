"""What every page of ours has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import django
from django.forms import Media
from django.http import HttpRequest
from django.template.response import TemplateResponse

from geneva_drive.admin.widgets import editor_media

if TYPE_CHECKING:
    from geneva_drive.admin.workflow_admin import WorkflowAdmin

__all__ = ["page", "user_name"]


def page(
    model_admin: WorkflowAdmin, request: HttpRequest, template: str, title: str, **context: Any
) -> TemplateResponse:
    """Return a page within the admin site that the request came to."""
    # Whence the templates' links take their namespace, also where the site has a name of its own.
    request.current_app = model_admin.admin_site.name
    everywhere = {
        **model_admin.admin_site.each_context(request),
        "title": title,
        "opts": model_admin.opts,
        "media": model_admin.media + editor_media() + Media(js=["geneva_drive/place.js"]),
        # Django's stylesheet for breadcrumbs is made for a list from 6.1 on.
        "is_nav_sidebar_enabled": False,  # the tables need the room
        "crumbs_in_list": django.VERSION >= (6, 1),
    }
    return TemplateResponse(request, f"geneva_drive/admin/{template}.html", {**everywhere, **context})


def user_name(request: HttpRequest) -> str:
    """Return whom the records name."""
    return str(request.user.get_username())
