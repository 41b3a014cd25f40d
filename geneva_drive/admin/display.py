"""What all pages share: how states, moments, heroes and JSON look, and the frame, address and permission of a page.

A state is always a word; the colour only helps.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import django
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.forms import Media
from django.http import Http404, HttpRequest
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils import formats
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from geneva_drive import clock
from geneva_drive.admin.forms import editor_media
from geneva_drive.definition.registry import registry
from geneva_drive.exceptions import HeroModelGone
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.wording import relative

_TONES = {
    "ok": ("finished", "completed", "success", "done", "consumed"),
    "run": ("ready", "performing", "scheduled", "in_progress", "continued", "current", "claimed"),
    "wait": ("waiting", "reattempted", "recovered", "pending"),
    "bad": ("paused", "failed", "workflow_paused", "undeclared"),
}
_TONE_OF = {word: tone for tone, words in _TONES.items() for word in words}


def tone(word: str) -> str:
    """Return the class that colours a state, an outcome, or the status of a step."""
    return f"gd-{_TONE_OF.get(word, 'quiet')}"


def pill(word: str, label: Any) -> SafeString:
    return format_html('<span class="gd-pill {}">{}</span>', tone(word), label)


def state_pill(workflow: Workflow) -> SafeString:
    return pill(workflow.state, workflow.get_state_display())


def when(moment: datetime | None, now: datetime) -> SafeString | str:
    """Return a moment relative to now, with the exact one on hover."""
    if moment is None:
        return "-"
    exact = formats.localize(clock.local(clock.utc(moment)))
    text = relative(moment, now)
    return format_html('<time datetime="{}" title="{}">{}</time>', clock.utc(moment).isoformat(), exact, text)


def type_name(label: str) -> str:
    """Return the verbose name of a type, or its label if this code does not declare it."""
    cls = registry.get(label)
    return label if cls is None else str(capfirst(cls._meta.verbose_name))


def hero_link(workflow: Workflow, site: admin.AdminSite) -> SafeString | str:
    """Return the hero, with a link to its own admin page if there is one."""
    if workflow.hero_type_id is None:
        return "-"
    content_type = ContentType.objects.db_manager(workflow._state.db).get_for_id(workflow.hero_type_id)
    name = f"{content_type.app_label}.{content_type.model} {workflow.hero_id}"
    try:
        hero: Any = workflow.hero
    except HeroModelGone:
        return format_html("{} {}", name, pill("failed", _("model missing")))
    if hero is None:
        return format_html("{} {}", name, pill("canceled", _("deleted")))
    try:
        text = str(hero)
    except Exception:  # noqa: BLE001 - an error in one hero's __str__ must not break the list
        text = name
    try:
        if not site.is_registered(type(hero)):
            return text
        url = reverse(f"{site.name}:{hero._meta.app_label}_{hero._meta.model_name}_change", args=[hero.pk])
    except NoReverseMatch:
        return text
    return format_html('<a href="{}">{}</a>', url, text)


def as_json(value: Any) -> str:
    """Return a stored value as JSON for people: values without a JSON type become text."""

    def other(each: Any) -> Any:
        if isinstance(each, Model):
            return f"{each._meta.label} {each.pk}"
        return list(each) if isinstance(each, set | frozenset) else str(each)

    return json.dumps(value, default=other, ensure_ascii=False, indent=1)


class ViewOnly:
    """An admin or inline that only shows rows: Django's add, change and delete permissions grant nothing."""

    def may(self, request: HttpRequest, permission: str) -> bool:
        return bool(request.user.has_perm(f"geneva_drive.{permission}"))

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        # Not Django's "may change, so may view": change grants nothing here.
        return self.may(request, "view_workflow")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    has_change_permission = has_delete_permission = has_add_permission

    @admin.display(description=gettext_lazy("state"))
    def shown_state(self, workflow: Workflow) -> str:
        return state_pill(workflow)

    @admin.display(description=gettext_lazy("started"))
    def shown_started(self, workflow: Workflow) -> str:
        now = getattr(workflow, "shown_now", None) or clock.now(workflow._state.db)
        return when(workflow.created_at, now)


class PagesAdmin(ViewOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    """What the pages ask of the admin: who may see them, their addresses, and their frame."""

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
