"""Pages of a list that costs the same with a million rows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.contrib import messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.http import HttpRequest

from geneva_drive import clock
from geneva_drive.admin.asking import KNOWN, faults
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.states import ACTIVE, ExecutionState, WorkflowState

__all__ = ["MOST", "CappedPaginator", "WorkflowChangeList"]

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
    failed = rows.filter(workflow_id__in=paused, state=ExecutionState.FAILED).order_by("pk")
    errors = {
        (workflow, step): error
        for workflow, step, error in failed.values_list("workflow_id", "step_name", "error_class")
    }
    for each in found:
        each.shown_active = active.get(each.pk)
        each.shown_error_class = errors.get((each.pk, each.next_step_name))
        each.shown_now = now
