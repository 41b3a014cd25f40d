"""What can be done by hand: its permission, its words, its form."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from geneva_drive.exceptions import GenevaDriveError
from geneva_drive.models.workflow import Workflow
from geneva_drive.serialization import encode
from geneva_drive.states import ONGOING, WorkflowState
from geneva_drive.workflows import perform

from .widgets import json_widget

__all__ = ["ACTIONS", "Action", "BY_NAME", "act_on"]


class ReasonForm(forms.Form):
    """Why, for the record."""

    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=1000,
        widget=forms.TextInput(attrs={"class": "vTextField", "size": 60}),
        help_text=_("Kept with each workflow."),
    )

    def arguments(self) -> dict[str, Any]:
        """Return what the action itself needs."""
        return {}


class RescheduleForm(ReasonForm):
    at = forms.SplitDateTimeField(
        label=_("Due"),
        widget=forms.SplitDateTimeWidget(date_attrs={"type": "date"}, time_attrs={"type": "time", "step": 1}),
    )
    field_order = ["at", "reason"]

    def arguments(self) -> dict[str, Any]:
        return {"at": self.cleaned_data["at"]}


class SignalForm(ReasonForm):
    name = forms.CharField(label=_("Name"), max_length=150)
    payload = forms.CharField(
        label=_("Payload (JSON)"), required=False, widget=json_widget, initial="null", strip=False
    )
    idempotency_key = forms.CharField(
        label=_("Idempotency key"),
        required=False,
        max_length=150,
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


class ResumeAtForm(ReasonForm):
    step = forms.CharField(label=_("Step"), widget=forms.RadioSelect)
    field_order = ["step", "reason"]

    def arguments(self) -> dict[str, Any]:
        return {"step": self.cleaned_data["step"]}


def _paused(workflow: Workflow) -> bool:
    return workflow.state == WorkflowState.PAUSED


def _resumable(workflow: Workflow) -> bool:
    return _paused(workflow) or workflow.pause_requested_at is not None


@dataclass(frozen=True)
class Action:
    """One thing that an operator can do.

    Attributes
    ----------
    call
        What `geneva_drive.workflows.perform` does.
    permission
        Codename in the app ``geneva_drive``.
    title, button
        Words for the page and its button; "…" after a button says that a question follows.
    applies
        Whether the page of one workflow offers it.
    explains
        What will happen, for the page that asks.
    """

    name: str
    call: str
    permission: str
    title: Any
    button: Any
    applies: Callable[[Workflow], bool]
    explains: Any
    form: type[ReasonForm] = ReasonForm
    dangerous: bool = False


ACTIONS: tuple[Action, ...] = (
    Action(
        "resume",
        "resume",
        "resume_workflow",
        _("Resume"),
        _("Resume"),
        _resumable,
        _(
            "What was scheduled goes on, at its time or at once when that has passed; a failed step is tried again."
        ),
    ),
    Action(
        "resume_at",
        "resume_at",
        "resume_workflow_at_step",
        _("Resume at a step"),
        _("Resume at…"),
        _paused,
        _("They go on from the step that you choose, now, and from nowhere else."),
        ResumeAtForm,
    ),
    Action(
        "run_now",
        "reschedule",
        "reschedule_workflow",
        _("Run now"),
        _("Run now"),
        lambda workflow: workflow.state == WorkflowState.READY,
        _("The scheduled step becomes due at once, whatever it was waiting for."),
    ),
    Action(
        "reschedule",
        "reschedule",
        "reschedule_workflow",
        _("Reschedule"),
        _("Reschedule…"),
        lambda workflow: workflow.state in (WorkflowState.READY, WorkflowState.PAUSED),
        _("The scheduled step becomes due at the time that you give."),
        RescheduleForm,
    ),
    Action(
        "pause",
        "pause",
        "pause_workflow",
        _("Pause"),
        _("Pause…"),
        lambda workflow: (
            workflow.state in (WorkflowState.READY, WorkflowState.PERFORMING)
            and workflow.pause_requested_at is None
        ),
        _("A step in flight finishes; nothing begins until they are resumed. Timers keep running."),
    ),
    Action(
        "skip",
        "skip",
        "skip_workflow_step",
        _("Skip the step"),
        _("Skip…"),
        lambda workflow: workflow.state in (WorkflowState.READY, WorkflowState.PAUSED),
        _("The step that is scheduled or pointed at is not run, and the workflow goes on with the next one."),
    ),
    Action(
        "signal",
        "signal",
        "signal_workflow",
        _("Send a signal"),
        _("Send signal…"),
        lambda workflow: workflow.state in ONGOING,
        _("A step that waits for it goes on; otherwise it is kept until one does."),
        SignalForm,
    ),
    Action(
        "cancel",
        "cancel",
        "cancel_workflow",
        _("Cancel"),
        _("Cancel…"),
        lambda workflow: workflow.state in ONGOING,
        _("Nothing follows the step in flight. This cannot be undone; another run can be started."),
        dangerous=True,
    ),
)

BY_NAME = {action.name: action for action in ACTIONS}


def act_on(
    keys: list[Any], action: Action, arguments: dict[str, Any], *, by: str, reason: str, using: str
) -> tuple[int, list[tuple[Any, str]]]:
    """Do it to each; return how many were done, and the key and message of each that was not."""
    done, failed = 0, []
    for key in keys:
        workflow = Workflow.objects.using(using).filter(pk=key).first()
        if workflow is None:
            failed.append((key, str(_("it is gone"))))
            continue
        try:
            perform(workflow, action.call, arguments, by=by, reason=reason)
            done += 1
        except GenevaDriveError as refused:
            failed.append((key, str(refused)))
    return done, failed
