"""What a list's query string asks for, and what of it cannot be meant.

What is not understood must never count as not asked: somebody could act on everything, meaning one hero's.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.contrib import messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ERROR_FLAG, IGNORED_PARAMS, PAGE_VAR, SEARCH_VAR, ChangeList
from django.core.exceptions import BadRequest
from django.core.paginator import Paginator
from django.http import HttpRequest
from django.utils.translation import gettext as _

from geneva_drive import clock
from geneva_drive.admin.filters import FILTERS
from geneva_drive.definition.registry import registry
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.selection import Selection, errors_named
from geneva_drive.states import ACTIVE, WorkflowState

KNOWN = frozenset([*(str(each.parameter_name) for each in FILTERS), *IGNORED_PARAMS, SEARCH_VAR, PAGE_VAR])
"""Parameters that mean something here."""


def selection_of(parameters: Any, using: str, *, up_to: Any = None) -> Selection:
    """Return the selection that a list's query string asks for.

    Raises
    ------
    BadRequest
        Some of it is not understood.
    """
    wrong = faults(parameters, using)
    if wrong:
        raise BadRequest(" ".join(wrong))
    parts: dict[str, Any] = {"up_to": up_to}
    for each in FILTERS:
        value = parameters.get(each.parameter_name)
        if value:
            parts[each.part] = each.read(value, using)
    return Selection(**parts, search=parameters.get(SEARCH_VAR) or "")


def faults(parameters: Any, using: str) -> list[str]:
    """Say of each part of a query string that is not understood what is wrong, and what a right one is."""
    found = []
    if ERROR_FLAG in parameters:
        found.append(_("A filter in the list's address was not understood, so nothing is listed."))
    for name in parameters:
        why = "" if name == ERROR_FLAG else _fault(name, parameters, using)
        if why:
            words = {"filter": name, "why": why}
            found.append(
                _("The filter “%(filter)s” was not understood, so nothing is listed: %(why)s") % words
            )
    return found


def _fault(name: str, parameters: Any, using: str) -> str:
    value = parameters[name]
    if name not in KNOWN:
        choices = ", ".join(str(each.parameter_name) for each in FILTERS)
        return _("there is no such filter. There are: %(choices)s.") % {"choices": choices}
    if "\0" in value:
        return _("it contains a NUL character, which no value has.")
    filters = [each for each in FILTERS if each.parameter_name == name]
    if not value or not filters:
        return ""
    try:
        asked = Selection(**{filters[0].part: filters[0].read(value, using)})
        rows = asked.apply(Workflow.objects.using(using), using)
    except ValueError as error:
        return str(error)
    # The names of what is gone from the code are known by the rows that it left.
    why_not = _NAMES[name](value, parameters, using) if name in _NAMES else ""
    return "" if not why_not or rows.exists() else why_not


def _unknown_type(value: str, _parameters: Any, _using: str) -> str:
    if registry.get(value) is not None:
        return ""
    words = {"value": value, "example": min(each._geneva.label for each in registry.all())}
    return _("'%(value)s' is no workflow here: write app_label.ClassName, for example %(example)s.") % words


def _unknown_step(value: str, parameters: Any, _using: str) -> str:
    cls = registry.get(parameters.get("type") or "")
    classes = registry.all() if cls is None else [cls]
    if any(each.steps.resolve(value) is not None for each in classes):
        return ""
    if cls is None:
        return _("'%(value)s' is no step here: choose a type, and then one of its steps.") % {"value": value}
    words = {"value": value, "type": cls._geneva.label, "steps": ", ".join(cls.steps.names)}
    return _("'%(value)s' is no step of %(type)s: write one of %(steps)s.") % words


def _unknown_error(value: str, _parameters: Any, using: str) -> str:
    if errors_named(using, value):
        return ""
    text = _("no step failed with '%(value)s': write an error's class, for example builtins.ValueError.")
    return text % {"value": value}


def _unknown_queue(value: str, _parameters: Any, using: str) -> str:
    queues = list(StepExecution.objects.using(using).free().skip_scan("queue"))
    if value in queues:
        return ""
    words = {"value": value, "queues": ", ".join(queues) or "-"}
    return _("nothing is on a queue '%(value)s' now. There is something on: %(queues)s.") % words


_NAMES = {
    "type": _unknown_type,
    "step": _unknown_step,
    "tried": _unknown_step,
    "error": _unknown_error,
    "queue": _unknown_queue,
}


MOST = 5000
"""Rows that are counted and can be paged through; filters lead further."""


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than `MOST`."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return len(rows.order_by().values_list("pk")[:MOST])


class WorkflowChangeList(ChangeList):
    """Fetches what the columns show in two queries a page, and lists nothing by what it does not understand."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> Any:
        self.faults = faults(request.GET, self.root_queryset.db)
        # What Django does not know it would answer with the list of everything; so it never sees it.
        self.filter_params = {name: values for name, values in self.filter_params.items() if name in KNOWN}
        found = super().get_queryset(request, exclude_parameters)
        return found.none() if self.faults else found

    def get_results(self, request: HttpRequest) -> None:
        if request.method == "GET":
            for fault in self.faults:
                messages.error(request, fault)
        try:
            super().get_results(request)
        except IncorrectLookupParameters:
            # There is no such page, or no longer: rows move on while somebody pages.
            paginator = self.model_admin.get_paginator(request, self.queryset, self.list_per_page)
            self.page_num = paginator.num_pages
            super().get_results(request)
        self.is_capped = self.result_count >= MOST
        found: Any = list(self.result_list)
        self.result_list = found
        if found:
            _fetch_what_is_shown(found)


def _fetch_what_is_shown(found: list[Any]) -> None:
    using = found[0]._state.db
    now = clock.now(using)
    rows = StepExecution.objects.using(using).filter(workflow_id__in=[each.pk for each in found])
    slim = rows.defer("error_message", "error_traceback", "cursor", "metadata", "active_workflow")
    active = {each.workflow_id: each for each in slim.filter(state__in=ACTIVE)}
    paused = [each.pk for each in found if each.state == WorkflowState.PAUSED]
    errors = Workflow.objects.using(using).filter(pk__in=paused).latest_errors()
    for each in found:
        each.shown_active = active.get(each.pk)
        each.shown_error_class = errors.get(each.pk)
        each.shown_now = now
