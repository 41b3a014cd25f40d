"""The choice of a step to resume at: what would run, what would not, and for whom it is no choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import BadRequest, ValidationError
from django.db.models import Count
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

from geneva_drive.admin.actions import BY_NAME, Action, act_on, forecast, why_not
from geneva_drive.admin.changelist import selection_of
from geneva_drive.admin.display import page, user_name
from geneva_drive.admin.forms import ResumeAtForm, StartForm
from geneva_drive.definition.collection import StepCollection, StepDefinition
from geneva_drive.definition.matchers import describe
from geneva_drive.definition.registry import registry
from geneva_drive.exceptions import GenevaDriveError
from geneva_drive.models.records import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.selection import Selection
from geneva_drive.states import ExecutionState, Outcome, SignalState, WorkflowState
from geneva_drive.workflows import BulkAction, start_for_operator

if TYPE_CHECKING:
    from geneva_drive.admin.workflow_admin import WorkflowAdmin


_LISTED = 20


def choices(rows: Any, count: int, *, chosen: str | None) -> dict[str, Any]:
    """Return what the page shows for a queryset of ``count`` workflows."""
    cls, why_not = _class_of(rows)
    if cls is None:
        return {"impossible": why_not, "steps": []}
    paused = rows.filter(state=WorkflowState.PAUSED)
    able = paused.count()
    others = rows.exclude(state=WorkflowState.PAUSED)
    by_state = others.order_by("state").values_list("state").annotate(Count("pk"))
    if not able:
        return {"impossible": _("None of them is paused: pause them first."), "steps": []}
    done = _done(cls.steps, paused)
    return {
        "steps": [
            {
                "name": step.name,
                "removed": step.removed,
                "note": " · ".join(_notes(step, cls.steps, done, paused, able)),
                "checked": step.name == chosen,
            }
            for step in cls.steps
        ],
        "able": able,
        "cannot_count": count - able,
        "cannot_by_state": list(by_state) if count - able > _LISTED else [],
        "cannot": list(others.defer("metadata", "job_options").order_by("pk")[:_LISTED]),
    }


def _class_of(rows: Any) -> tuple[type[Workflow] | None, str]:
    labels = list(rows.order_by().values_list("type", flat=True).distinct()[:10])
    classes = {registry.get(label) for label in labels}
    if len(classes) > 1:
        return None, _("Choose workflows of one type: the steps of different classes cannot be compared.")
    cls = classes.pop() if classes else None
    return cls, _(
        "This code does not declare the class of these workflows, so there is no step to resume at."
    )


def _notes(
    step: StepDefinition, steps: StepCollection, done: dict[str, int], paused: Any, able: int
) -> list[str]:
    if step.removed:
        return [_("a removed step: nothing can resume there")]
    finished = done.get(step.name, 0)
    if finished >= able:
        notes = [_("runs again in %(count)s: it was done in all of them") % {"count": able}]
    elif finished:
        counts = {"again": finished, "first": able - finished}
        notes = [_("runs again in %(again)s, for the first time in %(first)s") % counts]
    else:
        notes = [_("runs for the first time in %(count)s") % {"count": able}]
    before = [
        each.name for each in steps.runnable if steps.names.index(each.name) < steps.names.index(step.name)
    ]
    kept = [name for name in before if done.get(name, 0) >= able]
    if kept:
        notes.append(_("stays done: %(steps)s") % {"steps": ", ".join(kept)})
    passed = [f"{name} ({able - done.get(name, 0)})" for name in before if name not in kept]
    if passed:
        notes.append(_("passes over what was never done: %(steps)s") % {"steps": ", ".join(passed)})
    if step.wait_for is not None:
        notes.append(_awaited(step, paused, able))
    return notes


def _awaited(step: StepDefinition, paused: Any, able: int) -> str:
    signal = describe(step.wait_for)  # type: ignore[arg-type]
    name = getattr(step.wait_for, "name", None)
    if not isinstance(name, str):
        return _("waits for %(signal)s") % {"signal": signal}
    there = Signal.objects.using(paused.db).filter(
        workflow__in=paused.order_by().values("pk"),
        name=name,
        state__in=(SignalState.PENDING, SignalState.CLAIMED),
    )
    have = there.aggregate(have=Count("workflow", distinct=True))["have"]
    counts = {"signal": signal, "have": have, "park": able - have}
    return _("waits for %(signal)s: %(have)s have one, %(park)s will park") % counts


def _done(steps: StepCollection, paused: Any) -> dict[str, int]:
    """Return, by step, in how many of the workflows it was completed, under whatever name."""
    rows: Any = StepExecution.objects.using(paused.db).filter(
        workflow__in=paused.order_by().values("pk"),
        state=ExecutionState.COMPLETED,
        outcome=Outcome.SUCCESS,
    )
    names: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    for name, count in rows.order_by().values_list("step_name").annotate(Count("workflow", distinct=True)):
        step = steps.resolve(name)
        if step is not None:
            names.setdefault(step.name, set()).add(name)
            counts[step.name] = count
    for step_name, both in names.items():
        if len(both) > 1:  # some did it before it was renamed, some after, and some both
            found = rows.filter(step_name__in=both).aggregate(count=Count("workflow", distinct=True))
            counts[step_name] = found["count"]
    return counts


def _action(name: str) -> Action:
    if name not in BY_NAME:
        raise Http404(_("There is no action %(name)s.") % {"name": name})
    return BY_NAME[name]


def act_on_one(
    model_admin: WorkflowAdmin, request: HttpRequest, object_id: str, name: str
) -> HttpResponseBase:
    """Ask (GET), or do (POST). A GET changes nothing."""
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "POST"])
    action = _action(name)
    model_admin.require(request, action.permission)
    workflow = model_admin.find(request, object_id)
    using = str(workflow._state.db)
    back = _return_address(request) or model_admin.url_of(workflow)
    form = action.form(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        reason = form.cleaned_data["reason"]
        done, failed = act_on(
            [workflow.pk], action, form.arguments(), by=user_name(request), reason=reason, using=using
        )
        if done:
            model_admin.tell(request, _("%(action)s: done.") % {"action": action.title})
        for _key, message in failed:
            # Django begins each message with a capital: a workflow's label must not stand there.
            text = _("%(action)s: refused. %(message)s") % {"action": action.title, "message": message}
            model_admin.tell(request, text, messages.ERROR)
        return HttpResponseRedirect(back)
    impossible = why_not(action, workflow)
    only = Workflow.objects.using(using).filter(pk=workflow.pk)
    return page(
        model_admin,
        request,
        "act",
        f"{action.title}: {workflow.type} {workflow.pk}",
        action=action,
        form=form,
        workflow=workflow,
        count=1,
        submit=action.title,
        post_url=request.path,
        back=back,
        next=request.POST.get("next") or request.GET.get("next") or "",
        **({"impossible": impossible} if impossible else _choices(action, form, only, 1)),
    )


def _return_address(request: HttpRequest) -> str | None:
    address = request.POST.get("next") or request.GET.get("next")
    ours = url_has_allowed_host_and_scheme(
        address, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return address if ours else None


def ask_many(
    model_admin: WorkflowAdmin, request: HttpRequest, action: Action, queryset: Any
) -> HttpResponseBase:
    """Ask what the list's menu chose, for the ticked rows or for all that match."""
    model_admin.require(request, action.permission)
    query, using = request.GET.urlencode(), model_admin.alias(request)
    selection = _all_that_match(query, None, using)  # refuses a wrong filter, for ticked rows also
    if request.POST.get("select_across") != "1":
        return _ask(model_admin, request, action, queryset, query=query)
    matching = selection.apply(Workflow.objects.using(using), using)
    # What is added from now on was not counted, and is left alone.
    newest = matching.order_by("-pk").values_list("pk", flat=True).first()
    counted = matching.filter(pk__lte=newest) if newest is not None else matching.none()
    return _ask(model_admin, request, action, counted, query=query, up_to=newest, across=True)


def act_on_many(model_admin: WorkflowAdmin, request: HttpRequest, name: str) -> HttpResponseBase:
    """Do it to the ticked ones now; to all that match, in the background."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    action = _action(name)
    model_admin.require(request, action.permission)
    using = model_admin.alias(request)
    rows, query = Workflow.objects.using(using), request.POST.get("query", "")
    form = action.form(request.POST)
    if request.POST.get("across") == "1":
        (newest,) = _keys([request.POST.get("up_to", "")])
        selection = _all_that_match(query, newest, using)
        if not form.is_valid():
            chosen = selection.apply(rows, using)
            return _ask(
                model_admin, request, action, chosen, query=query, up_to=newest, across=True, form=form
            )
        return _in_the_background(model_admin, request, action, form, selection, using)
    chosen = rows.filter(pk__in=_keys(request.POST.getlist(ACTION_CHECKBOX_NAME)))
    if not form.is_valid():
        return _ask(model_admin, request, action, chosen, query=query, form=form)
    done, failed = act_on(
        list(chosen.order_by("pk").values_list("pk", flat=True)),
        action,
        form.arguments(),
        by=user_name(request),
        reason=form.cleaned_data["reason"],
        using=using,
    )
    _tell_results(model_admin, request, action, done, failed)
    return HttpResponseRedirect(_list_url(model_admin, query))


def _ask(
    model_admin: WorkflowAdmin,
    request: HttpRequest,
    action: Action,
    chosen: Any,
    *,
    query: str,
    up_to: Any = None,
    across: bool = False,
    form: Any = None,
) -> HttpResponseBase:
    rows = chosen.order_by("pk")
    count = rows.count()
    form = form or action.form()
    what = {"action": action.title, "count": count}
    return page(
        model_admin,
        request,
        "act",
        ngettext("%(action)s: %(count)s workflow", "%(action)s: %(count)s workflows", count) % what,
        action=action,
        form=form,
        count=count,
        across=across,
        up_to=up_to,
        query=query,
        keys=[] if across else list(rows.values_list("pk", flat=True)),
        checkbox=ACTION_CHECKBOX_NAME,
        listed=list(rows.defer("metadata", "job_options")[:_LISTED]),
        unlisted=max(0, count - _LISTED),
        submit=_("%(action)s: %(count)s") % what,
        post_url=model_admin.url("geneva_drive_act_on_many", action.name),
        back=_list_url(model_admin, query),
        **(forecast(action, chosen, count) or _choices(action, form, chosen, count)),
    )


def _choices(action: Action, form: Any, rows: Any, count: int) -> dict[str, Any]:
    if action.form is not ResumeAtForm:
        return {}
    return choices(rows, count, chosen=form.data.get("step") if form.is_bound else None)


def _in_the_background(
    model_admin: WorkflowAdmin,
    request: HttpRequest,
    action: Action,
    form: Any,
    selection: Selection,
    using: str,
) -> HttpResponseBase:
    bulk = BulkAction.start(
        using=using,
        metadata={
            "action": action.call,
            "arguments": form.arguments(),
            "selection": selection.as_dict(),
            "by": user_name(request),
            "reason": form.cleaned_data["reason"],
            "total": selection.apply(Workflow.objects.using(using), using).count(),
        },
    )
    model_admin.tell(request, _("This is done in the background. Reload this page to see how far it is."))
    return HttpResponseRedirect(model_admin.url_of(bulk))


def _all_that_match(query: str, up_to: Any, using: str) -> Selection:
    return selection_of(QueryDict(query), using, up_to=up_to)


def _tell_results(
    model_admin: WorkflowAdmin, request: HttpRequest, action: Action, done: int, failed: list[tuple[Any, str]]
) -> None:
    if done:
        model_admin.tell(request, _("%(action)s: %(count)s done.") % {"action": action.title, "count": done})
    if failed:
        text = ngettext("%(count)s failed: %(lines)s", "%(count)s failed: %(lines)s", len(failed))
        lines = "; ".join(f"{key}: {message}" for key, message in failed)
        model_admin.tell(request, text % {"count": len(failed), "lines": lines}, messages.ERROR)


def _list_url(model_admin: WorkflowAdmin, query: str) -> str:
    return model_admin.url("geneva_drive_workflow_changelist") + (f"?{query}" if query else "")


def _keys(texts: list[str]) -> list[Any]:
    key = Workflow._meta.pk
    try:
        return [key.to_python(each) for each in texts]
    except ValidationError as error:
        raise BadRequest("That is no workflow.") from error


def start(model_admin: WorkflowAdmin, request: HttpRequest) -> HttpResponseBase:
    """Ask for a class and a hero, and start it."""
    model_admin.require(request, "start_workflow")
    using = model_admin.alias(request)
    form = StartForm(request.POST if request.method == "POST" else None, using=using)
    if request.method == "POST" and form.is_valid():
        values = form.cleaned_data
        cls = registry.get(values["type"])
        if cls is None:
            raise BadRequest("The class is gone.")
        try:
            workflow = start_for_operator(
                cls, values["hero"], using=using, by=user_name(request), reason=values["reason"]
            )
        except GenevaDriveError as refused:
            form.add_error(None, str(refused))
        else:
            model_admin.tell(request, _("Started."))
            return HttpResponseRedirect(model_admin.url_of(workflow))
    back = model_admin.url("geneva_drive_workflow_changelist")
    return page(model_admin, request, "start", _("Start a workflow"), form=form, back=back)
