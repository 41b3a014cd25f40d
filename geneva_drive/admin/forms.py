"""JSON in forms and on pages: django-json-widget's editor where the extra ``admin`` is installed."""

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


_NEVER_ASKED_FOR = ("admin", "contenttypes", "geneva_drive", "sessions")


def possible_heroes(using: str) -> Any:
    """Return the content types that some declared workflow takes.

    Those are what a class names as ``hero_model``, and where one names none, whatever is not Django's own
    bookkeeping or ours.
    """
    named, takes_any = _wanted()
    known = ContentType.objects.using(using).order_by("app_label", "model")
    keys = []
    for content_type in known:
        model = content_type.model_class()
        if model is None:
            continue
        is_inner = content_type.app_label in _NEVER_ASKED_FOR or model._meta.label == "auth.Permission"
        if issubclass(model, named) or (takes_any and not is_inner):
            keys.append(content_type.pk)
    return known.filter(pk__in=keys)


def _wanted() -> tuple[tuple[type[Any], ...], bool]:
    named, takes_any = [], False
    for cls in registry.all():
        if cls is BulkAction:
            continue
        try:
            model = cls._geneva.resolve_hero_model()
        except StepConfigurationError:
            continue  # it starts for nobody, and says so when somebody tries
        if model is None:
            takes_any = True
        else:
            named.append(model)
    return tuple(named), takes_any


class ReasonForm(forms.Form):
    """Why, for the record."""

    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=1000,
        widget=forms.TextInput(attrs={"class": "vTextField", "size": 60, "autocomplete": "off"}),
        help_text=_("Kept with each workflow."),
    )

    def arguments(self) -> dict[str, Any]:
        """Return what the action itself needs."""
        return {}


class NeededReasonForm(ReasonForm):
    """For what cannot be undone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].required = True


class ResumeAtForm(NeededReasonForm):
    step = forms.CharField(label=_("Step"), widget=forms.RadioSelect)
    field_order = ["step", "reason"]

    def arguments(self) -> dict[str, Any]:
        return {"step": self.cleaned_data["step"]}


class RescheduleForm(ReasonForm):
    at = forms.SplitDateTimeField(
        label=_("Due"),
        widget=forms.SplitDateTimeWidget(
            date_attrs={"type": "date", "aria-label": _("Date")},  # type: ignore[dict-item]  # lazy text
            time_attrs={"type": "time", "step": "1", "aria-label": _("Time")},  # type: ignore[dict-item]
        ),
        help_text=_("In the time zone of this site."),
    )
    field_order = ["at", "reason"]

    def arguments(self) -> dict[str, Any]:
        return {"at": self.cleaned_data["at"]}


class SignalForm(ReasonForm):
    name = forms.CharField(
        label=_("Name"), max_length=LONGEST_SIGNAL_NAME, widget=forms.TextInput(attrs={"class": "vTextField"})
    )
    payload = forms.CharField(
        label=_("Payload (JSON)"), required=False, widget=JSONTextarea, initial="null", strip=False
    )
    idempotency_key = forms.CharField(
        label=_("Idempotency key"),
        required=False,
        max_length=LONGEST_IDEMPOTENCY_KEY,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=_("The same name and key again sends nothing a second time."),
    )
    field_order = ["name", "payload", "idempotency_key", "reason"]

    def clean_payload(self) -> Any:
        text = self.cleaned_data["payload"].strip() or "null"
        try:
            value = json.loads(text)
        except ValueError as error:
            raise forms.ValidationError(_("This is no JSON: %(error)s"), params={"error": error}) from error
        try:
            encode(value)
        except GenevaDriveError as error:
            raise forms.ValidationError(str(error)) from error
        return value

    def arguments(self) -> dict[str, Any]:
        return {
            "name": self.cleaned_data["name"],
            "payload": self.cleaned_data["payload"],
            "idempotency_key": self.cleaned_data["idempotency_key"] or None,
        }


class StartForm(ReasonForm):
    """A class and a hero."""

    type = forms.ChoiceField(label=_("Workflow"))
    hero_model = forms.ModelChoiceField(ContentType.objects.none(), label=_("Hero's model"), required=False)
    hero_key = forms.CharField(
        label=_("Hero's key"),
        required=False,
        max_length=255,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )
    field_order = ["type", "hero_model", "hero_key", "reason"]

    def __init__(self, *args: Any, using: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.using = using
        labels = sorted(cls._geneva.label for cls in registry.all() if cls is not BulkAction)
        self.fields["type"].choices = [(label, label) for label in labels]  # type: ignore[attr-defined]
        self.fields["hero_model"].queryset = possible_heroes(using)  # type: ignore[attr-defined]

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
                # Of whatever kind the key is, and whether or not the model is still there.
                raise forms.ValidationError(
                    {"hero_key": _("There is no %(model)s %(key)s.") % {"model": content_type, "key": key}}
                ) from error
        return values
