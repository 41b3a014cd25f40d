"""How states, times and heroes look. A state is told by its word; the colour only helps."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import django
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.forms import Media
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils import formats
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.admin.forms import editor_media
from geneva_drive.definition.registry import registry
from geneva_drive.exceptions import HeroModelGone
from geneva_drive.models.workflow import Workflow

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite

    from geneva_drive.admin.workflow_admin import WorkflowAdmin


_TONES = {
    "ready": "run",
    "performing": "run",
    "paused": "bad",
    "finished": "ok",
    "canceled": "quiet",
    "scheduled": "run",
    "waiting": "wait",
    "in_progress": "run",
    "completed": "ok",
    "failed": "bad",
    "skipped": "quiet",
    "success": "ok",
    "continued": "run",
    "reattempted": "wait",
    "recovered": "wait",
    "workflow_paused": "bad",
    "done": "ok",
    "current": "run",
    "to come": "quiet",
    "gravestone": "quiet",
    "not declared": "bad",
    "pending": "wait",
    "claimed": "run",
    "consumed": "ok",
}


def tone(word: str | None) -> str:
    """Return the class that colours a state or outcome."""
    return f"gd-{_TONES.get(word or '', 'quiet')}"


def pill(word: str, label: str | None = None) -> SafeString:
    """Return a state in a pill."""
    return format_html('<span class="gd-pill {}">{}</span>', tone(word), label or word)


def in_words(delta: timedelta) -> str:
    """Return a duration in its two largest units."""
    seconds = delta.total_seconds()
    if seconds < 10 and not seconds.is_integer():
        return _("%(count)s s") % {"count": formats.number_format(round(max(seconds, 0.0), 2))}
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [
        (days, _("%(count)s d")),
        (hours, _("%(count)s h")),
        (minutes, _("%(count)s min")),
        (seconds, _("%(count)s s")),
    ]
    shown = [each for each in parts if each[0]][:2] or parts[-1:]
    return " ".join(text % {"count": count} for count, text in shown)


def whole_seconds(delta: timedelta) -> timedelta:
    """Leave out the fraction: of what is told to have been so for some time."""
    return timedelta(seconds=int(delta.total_seconds()))


def relative(moment: datetime | None, now: datetime) -> SafeString | str:
    """Return a time relative to now, with the exact one on hover."""
    if moment is None:
        return "-"
    exact = clock.utc(moment)
    ahead = exact - now
    if abs(ahead) < timedelta(seconds=1):
        text = _("now")
    elif ahead > timedelta(0):
        text = _("in %(time)s") % {"time": in_words(whole_seconds(ahead))}
    else:
        text = _("%(time)s ago") % {"time": in_words(whole_seconds(-ahead))}
    shown = formats.localize(clock.local(exact))
    return format_html('<time datetime="{}" title="{}">{}</time>', exact.isoformat(), shown, text)


def type_name(label: str) -> str:
    """Return a type in words, or its label where this code does not declare it."""
    cls = registry.get(label)
    return label if cls is None else str(capfirst(cls._meta.verbose_name))


def hero_link(workflow: Workflow, site: AdminSite) -> SafeString | str:
    """Return the hero, linked to its own admin page where there is one."""
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
    except Exception:  # noqa: BLE001 - the project's own __str__: one hero's shall not take the list down
        text = name
    try:
        if not site.is_registered(type(hero)):
            return text
        url = reverse(f"{site.name}:{hero._meta.app_label}_{hero._meta.model_name}_change", args=[hero.pk])
    except NoReverseMatch:
        return text
    return format_html('<a href="{}">{}</a>', url, text)


def as_json(value: Any) -> str:
    """Return a stored value as JSON to be read: what JSON has no type for, as text."""

    def other(each: Any) -> Any:
        if isinstance(each, Model):
            return f"{each._meta.label} {each.pk}"
        if isinstance(each, set | frozenset | tuple):
            return list(each)
        return str(each)

    return json.dumps(value, default=other, ensure_ascii=False, indent=1)


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
