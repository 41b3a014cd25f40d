"""JSON in forms and on pages: django-json-widget's editor where the extra ``admin`` is installed."""

from __future__ import annotations

from typing import Any

from django import forms

__all__ = ["has_editor", "json_widget", "media"]

try:
    import django_json_widget  # noqa: F401
except ImportError:
    has_editor = False
else:
    from django.apps import apps

    has_editor = True

_SCRIPT = "geneva_drive/json.js"


def _editor_is_served() -> bool:
    return has_editor and apps.is_installed("django_json_widget")


class JSONTextarea(forms.Textarea):
    """A text area that our script turns into the editor.

    The editor's own widget starts it from an inline script, which a strict Content-Security-Policy refuses.
    """

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(
            {"rows": 6, "class": "vLargeTextField gd-json-edit", "spellcheck": "false", **(attrs or {})}
        )

    @property
    def media(self) -> forms.Media:
        return media()


def media() -> forms.Media:
    """Return the editor's files, or none where it is not installed: then JSON is plain text."""
    if not _editor_is_served():
        return forms.Media()
    return forms.Media(css={"all": ["dist/jsoneditor.min.css"]}, js=["dist/jsoneditor.min.js", _SCRIPT])


json_widget = JSONTextarea
