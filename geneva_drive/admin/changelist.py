"""The list of workflows: the selection that its address asks for, its pages, and what it fetches for its columns.

A filter that is not understood must never be ignored: somebody could act on all workflows, meaning one hero's.
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
from geneva_drive.admin.filters import FILTERS, Filter
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.selection import Selection

_FILTERS: dict[str, type[Filter]] = {str(each.parameter_name): each for each in FILTERS}
_KNOWN = frozenset([*_FILTERS, *IGNORED_PARAMS, SEARCH_VAR, PAGE_VAR])


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
    parts = {
        each.part: each.read(parameters[name], using)
        for name, each in _FILTERS.items()
        if parameters.get(name)
    }
    return Selection(**parts, up_to=up_to, search=parameters.get(SEARCH_VAR) or "")


def faults(parameters: Any, using: str) -> list[str]:
    """Say of each part of a query string that is not understood what is wrong, and what would be right."""
    found = []
    if ERROR_FLAG in parameters:
        found.append(_("A filter in the URL was not understood, so nothing is listed."))
    for name in parameters:
        why = "" if name == ERROR_FLAG else _fault(name, parameters, using)
        if why:
            text = _("The filter “%(filter)s” was not understood, so nothing is listed: %(why)s")
            found.append(text % {"filter": name, "why": why})
    return found


def _fault(name: str, parameters: Any, using: str) -> str:
    value, asked = parameters[name], _FILTERS.get(name)
    if name not in _KNOWN:
        return _("there is no such filter. There are: %(choices)s.") % {"choices": ", ".join(_FILTERS)}
    if "\0" in value:
        return _("it contains a NUL character.")
    if not value or asked is None:
        return ""
    try:
        selection = Selection(**{asked.part: asked.read(value, using)})
        rows = selection.apply(Workflow.objects.using(using), using)
    except ValueError as error:
        return str(error)
    # A name that the code no longer has is known by the rows that still have it.
    why = asked.unknown(value, parameters, using)
    return "" if not why or rows.exists() else why


MOST = 5000
"""Rows that are counted and can be paged through. Filters reach the others."""


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than `MOST`."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return len(rows.order_by().values_list("pk")[:MOST])


class WorkflowChangeList(ChangeList):
    """Fetches what the columns show in two queries a page, and lists nothing if it does not understand a filter."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> Any:
        self.faults = faults(request.GET, self.root_queryset.db)
        # Django would answer an unknown parameter with the whole list, so it never sees one.
        self.filter_params = {name: values for name, values in self.filter_params.items() if name in _KNOWN}
        found = super().get_queryset(request, exclude_parameters)
        return found.none() if self.faults else found

    def get_results(self, request: HttpRequest) -> None:
        if request.method == "GET":
            for fault in self.faults:
                messages.error(request, fault)
        try:
            super().get_results(request)
        except IncorrectLookupParameters:
            # There is no such page, or not any more: rows change while somebody pages.
            paginator = self.model_admin.get_paginator(request, self.queryset, self.list_per_page)
            self.page_num = paginator.num_pages
            super().get_results(request)
        self.is_capped = self.result_count >= MOST
        found: list[Any] = list(self.result_list)
        self.result_list: Any = found
        using, keys = self.queryset.db, [each.pk for each in found]
        now = clock.now(using)
        rows = StepExecution.objects.using(using).active().filter(workflow_id__in=keys)
        slim = rows.defer("error_message", "error_traceback", "cursor", "metadata", "active_workflow")
        active = {each.workflow_id: each for each in slim}
        errors = Workflow.objects.using(using).filter(pk__in=keys).latest_errors()
        for each in found:
            each.shown_active = active.get(each.pk)
            each.shown_error_class = errors.get(each.pk)
            each.shown_now = now
