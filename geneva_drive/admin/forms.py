"""The forms of the actions, and the JSON editor of the extra ``admin``."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.templatetags.static import static
from django.utils.translation import gettext_lazy as _

from geneva_drive.definition.matchers import LONGEST_IDEMPOTENCY_KEY, LONGEST_SIGNAL_NAME
from geneva_drive.definition.registry import registry
from geneva_drive.exceptions import GenevaDriveError, StepConfigurationError
from geneva_drive.serialization import encode
from geneva_drive.workflows import BulkAction

_LINE = {"class": "vTextField", "autocomplete": "off"}


def editor_media() -> forms.Media:
    """Return the JSON editor's files, or none if it is not installed: then JSON stays text."""
    if not apps.is_installed("django_json_widget"):
        return forms.Media()
    # The editor is large, so the script loads it only on a page with JSON.
    script = forms.Script("geneva_drive/json.js", **{"data-editor": static("dist/jsoneditor.min.js")})
    return forms.Media(css={"all": ["dist/jsoneditor.min.css"]}, js=[script])  # type: ignore[list-item]  # not in the stubs yet


class ReasonForm(forms.Form):
    """Asks why. Its other fields are the arguments of the action."""

    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=1000,
        widget=forms.TextInput({**_LINE, "size": 60}),
        help_text=_("Recorded with the workflow's operator actions."),
    )

    def arguments(self) -> dict[str, Any]:
        return {name: value for name, value in self.cleaned_data.items() if name != "reason"}


class ResumeAtForm(ReasonForm):
    step = forms.CharField(label=_("Step"), widget=forms.RadioSelect)
    field_order = ["step", "reason"]


class RescheduleForm(ReasonForm):
    at = forms.SplitDateTimeField(
        label=_("Due"),
        widget=forms.SplitDateTimeWidget(
            date_attrs={"type": "date", "aria-label": _("Date")},  # type: ignore[dict-item]  # lazy text
            time_attrs={"type": "time", "step": "1", "aria-label": _("Time")},  # type: ignore[dict-item]
        ),
        help_text=_("In this site's time zone."),
    )
    field_order = ["at", "reason"]


class SignalForm(ReasonForm):
    name = forms.CharField(label=_("Name"), max_length=LONGEST_SIGNAL_NAME, widget=forms.TextInput(_LINE))
    payload = forms.CharField(
        label=_("Payload (JSON)"),
        required=False,
        # The script makes it an editor.
        widget=forms.Textarea({"rows": 6, "class": "vLargeTextField gd-json-edit", "spellcheck": "false"}),
        initial="null",
        strip=False,
    )
    idempotency_key = forms.CharField(
        label=_("Idempotency key"),
        required=False,
        empty_value=None,
        max_length=LONGEST_IDEMPOTENCY_KEY,
        widget=forms.TextInput(_LINE),
        help_text=_("A second signal with this name and key changes nothing."),
    )
    field_order = ["name", "payload", "idempotency_key", "reason"]

    def clean_payload(self) -> Any:
        try:
            value = json.loads(self.cleaned_data["payload"].strip() or "null")
        except ValueError as error:
            raise forms.ValidationError(_("Not JSON: %(error)s"), params={"error": error}) from error
        try:
            encode(value)
        except GenevaDriveError as error:
            raise forms.ValidationError(str(error)) from error
        return value


class StartForm(ReasonForm):
    """Asks for a class and a hero."""

    type = forms.ChoiceField(label=_("Workflow"))
    hero_model = forms.ModelChoiceField(ContentType.objects.none(), label=_("Hero's model"), required=False)
    hero_key = forms.CharField(
        label=_("Hero's key"), required=False, max_length=255, widget=forms.TextInput(_LINE)
    )
    field_order = ["type", "hero_model", "hero_key", "reason"]

    def __init__(self, *args: Any, using: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.using = using
        labels = sorted(cls._geneva.label for cls in registry.all() if cls is not BulkAction)
        self.fields["type"].choices = [(label, label) for label in labels]  # type: ignore[attr-defined]
        self.fields["hero_model"].queryset = _possible_heroes(using)  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        content_type, key = values.get("hero_model"), values.get("hero_key")
        if bool(content_type) != bool(key):
            raise forms.ValidationError(_("Give both the hero's model and its key, or neither."))
        values["class"], values["hero"] = registry.get(values.get("type", "")), None
        if content_type is not None and key:
            try:
                values["hero"] = content_type.get_object_for_this_type(using=self.using, pk=key)
            except Exception as error:
                # The key may be of any kind, and the model may be gone.
                raise forms.ValidationError(
                    {"hero_key": _("There is no %(model)s %(key)s.") % {"model": content_type, "key": key}}
                ) from error
        return values


_NEVER_HEROES = ("admin", "contenttypes", "geneva_drive", "sessions")


def _possible_heroes(using: str) -> Any:
    """Return the content types that some declared class takes as hero.

    They are what a class names as ``hero_model``. If some class names none, they are all models but Django's
    internal ones and ours.
    """
    named: list[type[Any]] = []
    takes_any = False
    for cls in registry.all():
        if cls is BulkAction:
            continue
        try:
            model = cls._geneva.resolve_hero_model()
        except StepConfigurationError:
            continue  # starting it says what is wrong
        if model is None:
            takes_any = True
        else:
            named.append(model)
    keys = []
    known = ContentType.objects.using(using).order_by("app_label", "model")
    for content_type in known:
        model = content_type.model_class()
        if model is None:
            continue
        is_internal = content_type.app_label in _NEVER_HEROES or model._meta.label == "auth.Permission"
        if issubclass(model, tuple(named)) or (takes_any and not is_internal):
            keys.append(content_type.pk)
    return known.filter(pk__in=keys)
