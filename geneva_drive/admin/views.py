"""The pages that act: on one workflow, on many, at a step of one's choice, and to start one."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import BadRequest, ValidationError
from django.db.models import Count, Q
from django.http import (
    Http404,
    HttpRequest,
    HttpResponseBase,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
    QueryDict,
)
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from geneva_drive.admin.actions import BY_NAME, LISTED, Action, act_on, forecast, why_not
from geneva_drive.admin.changelist import selection_of
from geneva_drive.admin.display import PagesAdmin
from geneva_drive.admin.forms import ReasonForm, ResumeAtForm, StartForm
from geneva_drive.definition.collection import StepCollection, StepDefinition
from geneva_drive.definition.matchers import describe
from geneva_drive.definition.registry import registry
from geneva_drive.exceptions import GenevaDriveError
from geneva_drive.models.records import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.selection import Selection
from geneva_drive.states import UNCONSUMED, ExecutionState, Outcome, WorkflowState
from geneva_drive.workflows import BulkAction, start_for_operator


def _action(name: str) -> Action:
    if name not in BY_NAME:
        raise Http404(_("There is no action %(name)s.") % {"name": name})
    return BY_NAME[name]


def act_on_one(model_admin: PagesAdmin, request: HttpRequest, object_id: str, name: str) -> HttpResponseBase:
    """Ask (GET), or act (POST). A GET changes nothing."""
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "POST"])
    action = _action(name)
    model_admin.require(request, action.permission)
    workflow = model_admin.find(request, object_id)
    using = str(workflow._state.db)
    back = _return_address(request) or model_admin.url_of(workflow)
    form = action.make_form(request.POST if request.method == "POST" else None)
    if form.is_valid():
        done, failed = act_on([workflow.pk], action, form, by=request.user.get_username(), using=using)
        if done:
            messages.success(request, _("%(action)s: done.") % {"action": action.title})
        for _key, message in failed:
            # Django capitalizes a message, so it must not begin with a workflow's label.
            text = _("%(action)s: refused. %(message)s") % {"action": action.title, "message": message}
            messages.error(request, text)
        return HttpResponseRedirect(back)
    extra = {"impossible": why_not(action, workflow)}
    if not extra["impossible"] and isinstance(form, ResumeAtForm):
        extra = _steps(form, Workflow.objects.using(using).filter(pk=workflow.pk))
    return model_admin.page(
        request,
        "act",
        f"{action.title}: {workflow.type} {workflow.pk}",
        action=action,
        form=form,
        count=1,
        submit=action.title,
        post_url=request.path,
        back=back,
        next=request.POST.get("next") or request.GET.get("next") or "",
        **extra,
    )


def _return_address(request: HttpRequest) -> str | None:
    address = request.POST.get("next") or request.GET.get("next")
    ours = url_has_allowed_host_and_scheme(
        address, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return address if ours else None


def ask_many(
    model_admin: PagesAdmin, request: HttpRequest, action: Action, queryset: Any
) -> HttpResponseBase:
    """Ask about the action chosen in the list's menu, for the ticked rows or for all that match."""
    model_admin.require(request, action.permission)
    query, using = request.GET.urlencode(), model_admin.alias(request)
    selection = selection_of(QueryDict(query), using)  # refuses a wrong filter, for ticked rows also
    if request.POST.get("select_across") != "1":
        return _ask(model_admin, request, action, queryset, query=query)
    matching = selection.apply(Workflow.objects.using(using), using)
    # Workflows added from now on were not counted, and are left alone.
    newest = matching.order_by("-pk").values_list("pk", flat=True).first()
    counted = matching.filter(pk__lte=newest) if newest is not None else matching.none()
    return _ask(model_admin, request, action, counted, query=query, up_to=newest)


def act_on_many(model_admin: PagesAdmin, request: HttpRequest, name: str) -> HttpResponseBase:
    """Act on the ticked rows now, or on all that match in the background."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    action = _action(name)
    model_admin.require(request, action.permission)
    using = model_admin.alias(request)
    rows, query = Workflow.objects.using(using), request.POST.get("query", "")
    form = action.make_form(request.POST)
    if request.POST.get("across") == "1":
        (newest,) = _keys([request.POST.get("up_to", "")])
        selection = selection_of(QueryDict(query), using, up_to=newest)
        if form.is_valid():
            return _in_the_background(model_admin, request, action, form, selection)
        chosen = selection.apply(rows, using)
        return _ask(model_admin, request, action, chosen, query=query, up_to=newest, form=form)
    chosen = rows.filter(pk__in=_keys(request.POST.getlist(ACTION_CHECKBOX_NAME)))
    if not form.is_valid():
        return _ask(model_admin, request, action, chosen, query=query, form=form)
    keys = list(chosen.order_by("pk").values_list("pk", flat=True))
    done, failed = act_on(keys, action, form, by=request.user.get_username(), using=using)
    if done:
        messages.success(request, _("%(action)s: %(count)s done.") % {"action": action.title, "count": done})
    if failed:
        lines = "; ".join(f"{key}: {message}" for key, message in failed)
        text = ngettext("%(count)s failed: %(lines)s", "%(count)s failed: %(lines)s", len(failed))
        messages.error(request, text % {"count": len(failed), "lines": lines})
    return HttpResponseRedirect(model_admin.list_url(query))


def _keys(texts: list[str]) -> list[Any]:
    try:
        return [Workflow._meta.pk.to_python(each) for each in texts]
    except ValidationError as error:
        raise BadRequest("Not a workflow's key.") from error


def _ask(
    model_admin: PagesAdmin,
    request: HttpRequest,
    action: Action,
    chosen: Any,
    *,
    query: str,
    up_to: Any = None,
    form: ReasonForm | None = None,
) -> HttpResponseBase:
    """Return the page that asks. With ``up_to``, the newest key that was counted, it asks about all that match."""
    rows = chosen.order_by("pk")
    count = rows.count()
    form = form or action.make_form()
    extra = forecast(action, chosen, count)
    if "impossible" not in extra and isinstance(form, ResumeAtForm):
        extra |= _steps(form, chosen)
    what = {"action": action.title, "count": count}
    return model_admin.page(
        request,
        "act",
        ngettext("%(action)s: %(count)s workflow", "%(action)s: %(count)s workflows", count) % what,
        action=action,
        form=form,
        count=count,
        up_to=up_to,
        query=query,
        keys=[] if up_to is not None else list(rows.values_list("pk", flat=True)),
        checkbox=ACTION_CHECKBOX_NAME,
        listed=list(rows.defer("metadata", "job_options")[:LISTED]),
        unlisted=max(0, count - LISTED),
        submit=_("%(action)s: %(count)s") % what,
        post_url=model_admin.url("act_on_many", action.name),
        back=model_admin.list_url(query),
        **extra,
    )


def _in_the_background(
    model_admin: PagesAdmin, request: HttpRequest, action: Action, form: ReasonForm, selection: Selection
) -> HttpResponseBase:
    using = model_admin.alias(request)
    bulk = BulkAction.start(
        using=using,
        metadata={
            "action": action.verb,
            "arguments": form.arguments(),
            "selection": selection.as_dict(),
            "by": request.user.get_username(),
            "reason": form.cleaned_data["reason"],
            "total": selection.apply(Workflow.objects.using(using), using).count(),
        },
    )
    messages.success(request, _("Running in the background. Reload this page to see its progress."))
    return HttpResponseRedirect(model_admin.url_of(bulk))


def _steps(form: ResumeAtForm, rows: Any) -> dict[str, Any]:
    """Return the choice of a step to resume at, or why there is none."""
    labels = rows.order_by().values_list("type", flat=True).distinct()[:10]
    classes = {registry.get(label) for label in labels}
    if len(classes) > 1:
        return {"impossible": _("Choose workflows of one type: different types have different steps.")}
    cls = next(iter(classes), None)
    if cls is None:
        return {"impossible": _("This code does not declare their class, so there is no step to resume at.")}
    paused = rows.filter(state=WorkflowState.PAUSED)
    able, done = paused.count(), _done(cls.steps, paused)
    chosen = form.data.get("step") if form.is_bound else None
    return {
        "steps": [
            {
                "name": step.name,
                "removed": step.removed,
                "note": " · ".join(_notes(step, cls.steps, done, paused, able)),
                "checked": step.name == chosen,
            }
            for step in cls.steps
        ]
    }


def _done(steps: StepCollection, paused: Any) -> dict[str, int]:
    """Return, by step, how many of the workflows have completed it under its name or a former one."""
    rows = StepExecution.objects.using(paused.db).filter(
        workflow__in=paused.order_by().values("pk"),
        state=ExecutionState.COMPLETED,
        outcome=Outcome.SUCCESS,
    )
    counts = [
        Count("workflow", distinct=True, filter=Q(step_name__in=(step.name, *step.formerly)))
        for step in steps.runnable
    ]
    found = rows.aggregate(**{f"step_{place}": count for place, count in enumerate(counts)})
    return {step.name: found[f"step_{place}"] for place, step in enumerate(steps.runnable)}


def _notes(
    step: StepDefinition, steps: StepCollection, done: dict[str, int], paused: Any, able: int
) -> list[str]:
    if step.removed:
        return [_("removed step: cannot resume here")]
    if able == 1:
        notes = [_("completed before, runs again") if done[step.name] else _("not completed yet")]
    else:
        notes = [_("completed in %(done)s of %(count)s") % {"done": done[step.name], "count": able}]
    before = steps.names[: steps.names.index(step.name)]
    earlier = [name for name in before if name in done]
    if kept := [name for name in earlier if done[name] >= able]:
        notes.append(_("earlier steps completed: %(steps)s") % {"steps": ", ".join(kept)})
    if passed := [f"{name} ({able - done[name]})" for name in earlier if name not in kept]:
        notes.append(_("will not run: %(steps)s") % {"steps": ", ".join(passed)})
    if step.wait_for is not None:
        notes.append(_awaited(step.wait_for, paused, able))
    return notes


def _awaited(matcher: Any, paused: Any, able: int) -> str:
    name, signal = getattr(matcher, "name", None), describe(matcher)
    if not isinstance(name, str):
        return _("waits for %(signal)s") % {"signal": signal}
    rows = Signal.objects.using(paused.db).filter(
        workflow__in=paused.order_by().values("pk"), name=name, state__in=UNCONSUMED
    )
    have = rows.aggregate(have=Count("workflow", distinct=True))["have"]
    counts = {"signal": signal, "have": have, "count": able}
    return _("waits for %(signal)s: received in %(have)s of %(count)s") % counts


def start(model_admin: PagesAdmin, request: HttpRequest) -> HttpResponseBase:
    """Ask for a class and a hero, and start a workflow."""
    model_admin.require(request, "start_workflow")
    using = model_admin.alias(request)
    form = StartForm(request.POST if request.method == "POST" else None, using=using)
    if form.is_valid():
        values, by = form.cleaned_data, request.user.get_username()
        try:
            workflow = start_for_operator(
                values["class"], values["hero"], using=using, by=by, reason=values["reason"]
            )
        except GenevaDriveError as refused:
            form.add_error(None, str(refused))
        else:
            messages.success(request, _("Started."))
            return HttpResponseRedirect(model_admin.url_of(workflow))
    back = model_admin.list_url()
    return model_admin.page(request, "start", _("Start a workflow"), form=form, back=back)
