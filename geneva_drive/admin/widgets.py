"""JSON in forms and on pages: django-json-widget's editor where the extra ``admin`` is installed."""

from __future__ import annotations

from typing import Any

from django import forms
from django.apps import apps
from django.templatetags.static import static

__all__ = ["JSONTextarea", "editor_media"]


class JSONTextarea(forms.Textarea):
    """A text area that our script turns into the editor.

    The editor's own widget starts it from an inline script, which a strict Content-Security-Policy refuses.
    """

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(
            {"rows": 6, "class": "vLargeTextField gd-json-edit", "spellcheck": "false", **(attrs or {})}
        )


def editor_media() -> forms.Media:
    """Return the editor's files, or none where it is not installed: then JSON is plain text."""
    if not apps.is_installed("django_json_widget"):
        return forms.Media()
    # The editor is large, so the script fetches it where there is JSON to show.
    script = forms.Script("geneva_drive/json.js", **{"data-editor": static("dist/jsoneditor.min.js")})
    return forms.Media(css={"all": ["dist/jsoneditor.min.css"]}, js=[script])  # type: ignore[list-item]  # not in the stubs yet
