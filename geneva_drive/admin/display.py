"""How states, times and heroes look on a page. A state is always a word; the colour only helps."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.urls import NoReverseMatch, reverse
from django.utils import formats
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.definition.registry import registry
from geneva_drive.exceptions import HeroModelGone
from geneva_drive.models.workflow import Workflow

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite


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
    "undeclared": "bad",
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


def state_pill(workflow: Workflow) -> SafeString:
    return pill(workflow.state, workflow.get_state_display())


def in_words(delta: timedelta, *, whole: bool = False) -> str:
    """Return a duration in its two largest units; with ``whole``, without a fraction of a second."""
    seconds = delta.total_seconds()
    if seconds < 10 and not seconds.is_integer() and not whole:
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


def relative(moment: datetime | None, now: datetime) -> SafeString | str:
    """Return a time relative to now, with the exact one on hover."""
    if moment is None:
        return "-"
    exact = clock.utc(moment)
    ahead = exact - now
    if abs(ahead) < timedelta(seconds=1):
        text = _("now")
    elif ahead > timedelta(0):
        text = _("in %(time)s") % {"time": in_words(ahead, whole=True)}
    else:
        text = _("%(time)s ago") % {"time": in_words(-ahead, whole=True)}
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
