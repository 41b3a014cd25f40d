"""The page that starts a workflow by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.utils.translation import gettext as _

from geneva_drive.admin.forms import StartForm
from geneva_drive.admin.rendering import page, user_name
from geneva_drive.definition.registry import registry
from geneva_drive.exceptions import GenevaDriveError
from geneva_drive.workflows import start_by_hand

if TYPE_CHECKING:
    from geneva_drive.admin.workflow_admin import WorkflowAdmin

__all__ = ["start"]


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
            workflow = start_by_hand(
                cls, values["hero"], using=using, by=user_name(request), reason=values["reason"]
            )
        except GenevaDriveError as refused:
            form.add_error(None, str(refused))
        else:
            model_admin.tell(request, _("Started."))
            return HttpResponseRedirect(model_admin.url_of(workflow))
    back = model_admin.url("geneva_drive_workflow_changelist")
    return page(model_admin, request, "start", _("Start a workflow"), form=form, back=back)
