"""How states, times and heroes look. A state is told by its word; the colour only helps."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.contenttypes.models import ContentType
from django.urls import NoReverseMatch, reverse
from django.utils import formats
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.exceptions import HeroModelGone

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite

    from geneva_drive.models.workflow import Workflow

__all__ = ["hero_link", "in_words", "pill", "relative", "tone"]

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


_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def in_words(delta: timedelta) -> str:
    """Return a duration in its two largest units."""
    seconds = delta.total_seconds()
    if seconds < 10:
        return f"{formats.number_format(round(max(seconds, 0.0), 2))} s"
    parts = []
    rest = int(seconds)
    for size, name in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


def relative(moment: datetime | None, now: datetime) -> SafeString | str:
    """Return a time relative to now, with the exact one on hover."""
    if moment is None:
        return "-"
    exact = clock.utc(moment)
    ahead = exact - now
    if abs(ahead) < timedelta(seconds=1):
        text = _("now")
    elif ahead > timedelta(0):
        text = _("in %(time)s") % {"time": in_words(ahead)}
    else:
        text = _("%(time)s ago") % {"time": in_words(-ahead)}
    shown = formats.localize(clock.local(exact))
    return format_html('<time datetime="{}" title="{}">{}</time>', exact.isoformat(), shown, text)


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
        if not site.is_registered(type(hero)):
            return str(hero)
        url = reverse(f"{site.name}:{hero._meta.app_label}_{hero._meta.model_name}_change", args=[hero.pk])
    except NoReverseMatch:
        return str(hero)
    return format_html('<a href="{}">{}</a>', url, hero)
