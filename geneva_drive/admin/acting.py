"""The pages that ask before something is done, and the POSTs that do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Count, Max
from django.http import (
    Http404,
    HttpRequest,
    HttpResponseBase,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
    QueryDict,
)
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from geneva_drive.admin.actions import BY_NAME, Action, ResumeAtForm, act_on
from geneva_drive.admin.filters import selection_of
from geneva_drive.exceptions import GenevaDriveError
from geneva_drive.models.registry import registry
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ExecutionState, Outcome, WorkflowState
from geneva_drive.workflows import BulkAction

if TYPE_CHECKING:
    from geneva_drive.admin.workflow_admin import WorkflowAdmin

__all__ = ["act_on_many", "act_on_one", "ask_many", "start"]

_LISTED = 20


def _action(name: str) -> Action:
    if name not in BY_NAME:
        raise Http404(_("There is no action %(name)s.") % {"name": name})
    return BY_NAME[name]


def _who(request: HttpRequest) -> str:
    return str(request.user.get_username())


def _context(
    model_admin: WorkflowAdmin, request: HttpRequest, action: Action | None, **more: Any
) -> dict[str, Any]:
    return {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "action": action,
        "media": model_admin.page_media(),
        **more,
    }


# -- one


def act_on_one(
    model_admin: WorkflowAdmin, request: HttpRequest, object_id: str, name: str
) -> HttpResponseBase:
    """Ask (GET), or do (POST). A GET changes nothing."""
    action = _action(name)
    workflow = model_admin.find(request, object_id)
    model_admin.require(request, action.permission)
    rows = Workflow.objects.using(workflow._state.db).filter(pk=workflow.pk)
    form = action.form(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        done, failed = act_on(
            [workflow.pk],
            action,
            form.arguments(),
            by=_who(request),
            reason=form.cleaned_data["reason"],
            using=str(workflow._state.db),
        )
        if done:
            model_admin.tell(request, _("%(action)s: done.") % {"action": action.title})
        for _key, message in failed:
            model_admin.tell(request, message, messages.ERROR)
        return HttpResponseRedirect(model_admin.url_of(workflow))
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "POST"])
    context = _context(
        model_admin,
        request,
        action,
        title=f"{action.title}: {workflow.type} {workflow.pk}",
        form=form,
        workflow=workflow,
        count=1,
        post_url=request.path,
        back=model_admin.url_of(workflow),
        **_choices(action, form, rows, 1),
    )
    return TemplateResponse(request, "geneva_drive/admin/act.html", context)


# -- many


def ask_many(
    model_admin: WorkflowAdmin, request: HttpRequest, action: Action, queryset: Any
) -> HttpResponseBase:
    """Ask what the list's menu chose, for the ticked rows or for all that match."""
    model_admin.require(request, action.permission)
    across = request.POST.get("select_across") == "1"
    return _ask(model_admin, request, action, queryset, across=across, query=request.GET.urlencode())


def _ask(
    model_admin: WorkflowAdmin,
    request: HttpRequest,
    action: Action,
    queryset: Any,
    *,
    across: bool,
    query: str,
    form: Any = None,
) -> HttpResponseBase:
    rows = queryset.order_by("pk")
    count = rows.count()
    keys = [] if across else list(rows.values_list("pk", flat=True))
    form = form or action.form()
    context = _context(
        model_admin,
        request,
        action,
        title=ngettext("%(action)s: %(count)s workflow", "%(action)s: %(count)s workflows", count)
        % {"action": action.title, "count": count},
        form=form,
        count=count,
        across=across,
        query=query,
        keys=keys,
        checkbox=ACTION_CHECKBOX_NAME,
        listed=list(rows.defer("metadata", "job_options")[:_LISTED]),
        unlisted=max(0, count - _LISTED),
        post_url=model_admin.url("geneva_drive_act_on_many", action.name),
        back=model_admin.url("geneva_drive_workflow_changelist") + (f"?{query}" if query else ""),
        **_choices(action, form, queryset, count),
    )
    return TemplateResponse(request, "geneva_drive/admin/act.html", context)


def act_on_many(model_admin: WorkflowAdmin, request: HttpRequest, name: str) -> HttpResponseBase:
    """Do it to the ticked ones now; to all that match, in the background."""
    action = _action(name)
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    model_admin.require(request, action.permission)
    using = model_admin.alias(request)
    across = request.POST.get("across") == "1"
    query = request.POST.get("query", "")
    rows = Workflow.objects.using(using)
    if across:
        selection = selection_of(QueryDict(query), using)
        chosen = selection.apply(rows, using)
    else:
        selection = None
        chosen = rows.filter(pk__in=_keys(request))
    form = action.form(request.POST)
    if not form.is_valid():
        return _ask(model_admin, request, action, chosen, across=across, query=query, form=form)
    arguments, reason = form.arguments(), form.cleaned_data["reason"]
    back = model_admin.url("geneva_drive_workflow_changelist") + (f"?{query}" if query else "")
    if selection is not None:
        # What is added while it runs does not belong: the count that was shown is exact.
        newest = chosen.aggregate(newest=Max("pk"))["newest"]
        bulk = BulkAction.start(
            using=using,
            metadata={
                "action": action.call,
                "arguments": arguments,
                "selection": {**selection.as_dict(), "up_to": newest},
                "by": _who(request),
                "reason": reason,
                "total": chosen.count(),
            },
        )
        model_admin.tell(
            request, _("Being done in the background; this page shows how far it is. Reload to see more.")
        )
        return HttpResponseRedirect(model_admin.url_of(bulk))
    done, failed = act_on(
        list(chosen.order_by("pk").values_list("pk", flat=True)),
        action,
        arguments,
        by=_who(request),
        reason=reason,
        using=using,
    )
    if done:
        text = ngettext("%(action)s: %(count)s done.", "%(action)s: %(count)s done.", done)
        model_admin.tell(request, text % {"action": action.title, "count": done})
    if failed:
        lines = "; ".join(f"{key}: {message}" for key, message in failed[:_LISTED])
        more = len(failed) - _LISTED
        text = ngettext("%(count)s failed: %(lines)s", "%(count)s failed: %(lines)s", len(failed))
        model_admin.tell(
            request,
            text % {"count": len(failed), "lines": lines} + (f"; … {more} more" if more > 0 else ""),
            messages.ERROR,
        )
    return HttpResponseRedirect(back)


def _keys(request: HttpRequest) -> list[Any]:
    key = Workflow._meta.pk
    try:
        return [key.to_python(each) for each in request.POST.getlist(ACTION_CHECKBOX_NAME)]
    except ValidationError as error:
        raise Http404(_("That is no workflow.")) from error


# -- the choice of a step


def _choices(action: Action, form: Any, rows: Any, count: int) -> dict[str, Any]:
    """Return what the page that asks for a step shows: each step with what would run and what would not."""
    if action.form is not ResumeAtForm:
        return {}
    types = list(rows.order_by().values_list("type", flat=True).distinct()[:2])
    cls = registry.get(types[0]) if len(types) == 1 else None
    if cls is None:
        why = (
            _("Choose workflows of one type: the steps of different classes cannot be compared.")
            if len(types) > 1
            else _(
                "The class of these workflows is not declared in this code, so there is no step to resume at."
            )
        )
        return {"impossible": why, "steps": []}
    paused = rows.filter(state=WorkflowState.PAUSED)
    able = paused.count()
    cannot = [
        (each.pk, each.get_state_display())
        for each in rows.exclude(state=WorkflowState.PAUSED)
        .defer("metadata", "job_options")
        .order_by("pk")[:_LISTED]
    ]
    done: Any = StepExecution.objects.using(rows.db).filter(
        workflow__in=paused.order_by().values("pk"), state=ExecutionState.COMPLETED, outcome=Outcome.SUCCESS
    )
    counts: dict[str, int] = {}
    for name, number in done.order_by().values_list("step_name").annotate(Count("workflow", distinct=True)):
        step = cls.steps.resolve(name)
        if step is not None:
            counts[step.name] = max(counts.get(step.name, 0), number)
    chosen = form.data.get("step") if form.is_bound else None
    steps = []
    for step in cls.steps:
        finished = counts.get(step.name, 0)
        if step.removed:
            note = _("a removed step: nothing can resume there")
        elif finished >= able:
            note = _("runs again in %(count)s: it was done in all of them") % {"count": able}
        elif finished:
            note = _("runs again in %(again)s, for the first time in %(first)s") % {
                "again": finished,
                "first": able - finished,
            }
        else:
            note = _("runs for the first time in %(count)s") % {"count": able}
        passed = [
            each.name
            for each in cls.steps.runnable
            if cls.steps.names.index(each.name) < cls.steps.names.index(step.name)
            and counts.get(each.name, 0) < able
        ]
        if passed and not step.removed:
            note += " · " + _("passes over what was not done everywhere: %(steps)s") % {
                "steps": ", ".join(passed)
            }
        steps.append(
            {"name": step.name, "removed": step.removed, "note": note, "checked": step.name == chosen}
        )
    return {"steps": steps, "able": able, "cannot": cannot, "cannot_count": count - able}


# -- starting


class StartForm(forms.Form):
    """A class and a hero."""

    type = forms.ChoiceField(label=gettext_lazy("Workflow"))
    hero_model = forms.ModelChoiceField(
        ContentType.objects.none(), label=gettext_lazy("Hero's model"), required=False
    )
    hero_key = forms.CharField(label=gettext_lazy("Hero's key"), required=False, max_length=255)

    def __init__(self, *args: Any, using: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.using = using
        labels = sorted(cls._geneva.label for cls in registry.all() if cls is not BulkAction)
        self.fields["type"].choices = [(label, label) for label in labels]  # type: ignore[attr-defined]
        known = ContentType.objects.using(using).order_by("app_label", "model")
        self.fields["hero_model"].queryset = known  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        content_type, key = values.get("hero_model"), values.get("hero_key")
        if bool(content_type) != bool(key):
            raise forms.ValidationError(_("Give both the hero's model and its key, or neither."))
        values["hero"] = None
        if content_type is not None and key:
            try:
                values["hero"] = content_type.get_object_for_this_type(using=self.using, pk=key)
            except Exception as error:
                # Of whatever kind the key is, and whether or not the model is still there.
                message = _("There is no %(model)s %(key)s.") % {"model": content_type, "key": key}
                raise forms.ValidationError({"hero_key": message}) from error
        return values


def start(model_admin: WorkflowAdmin, request: HttpRequest) -> HttpResponseBase:
    """Start a workflow by hand."""
    model_admin.require(request, "start_workflow")
    using = model_admin.alias(request)
    form = StartForm(request.POST if request.method == "POST" else None, using=using)
    if request.method == "POST" and form.is_valid():
        cls = registry.get(form.cleaned_data["type"])
        if cls is None:
            raise PermissionDenied
        try:
            workflow = cls.start(form.cleaned_data["hero"], using=using)
        except GenevaDriveError as refused:
            form.add_error(None, str(refused))
        else:
            model_admin.log_addition(request, workflow, [{"added": {}}])
            model_admin.tell(request, _("Started."))
            return HttpResponseRedirect(model_admin.url_of(workflow))
    context = _context(
        model_admin,
        request,
        None,
        title=_("Start a workflow"),
        form=form,
        back=model_admin.url("geneva_drive_workflow_changelist"),
    )
    return TemplateResponse(request, "geneva_drive/admin/start.html", context)
