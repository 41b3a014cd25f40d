"""The actions that operators can take: permission, words and form of each, and what a page says beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Count
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from geneva_drive.admin.forms import ReasonForm, RescheduleForm, ResumeAtForm, SignalForm
from geneva_drive.exceptions import GenevaDriveError
from geneva_drive.lifecycle import allowed
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.selection import Selection
from geneva_drive.states import WorkflowState
from geneva_drive.workflows import perform


@dataclass(frozen=True)
class Action:
    """Something that an operator can do."""

    name: str
    permission: str  # codename in the app ``geneva_drive``
    title: Any
    explains: Any  # what will happen, for the page that asks
    form: type[ReasonForm] = ReasonForm
    # Whether a workflow's own page asks before it is done. For many workflows it is always asked.
    asks: bool = True
    destructive: bool = False  # whether work may be lost by it; then a reason is required

    @property
    def verb(self) -> str:
        """What `geneva_drive.workflows.perform` does, and `allowed.RULES` rules on."""
        return "reschedule" if self.name == "run_now" else self.name

    def make_form(self, data: Any = None) -> ReasonForm:
        form = self.form(data)
        form.fields["reason"].required = self.destructive
        return form

    def is_offered(self, workflow: Workflow, active: StepExecution | None) -> bool:
        """Whether the workflow, which has this active execution, gets a button for it."""
        if self.name == "pause" and workflow.pause_requested_at is not None:
            return False  # it was asked for already
        if self.name == "run_now" and workflow.state != WorkflowState.READY:
            return False  # it would be due, and still not run
        return not allowed.why_not(self.verb, workflow, active)


ACTIONS: tuple[Action, ...] = (
    Action(
        "resume",
        "resume_workflow",
        _("Resume"),
        _("A scheduled step runs at its time, or now if that has passed. A failed step is retried."),
        asks=False,
    ),
    Action(
        "resume_at",
        "resume_workflow_at_step",
        _("Resume at a step"),
        _("The workflow continues from the step you choose. Whatever was scheduled is canceled."),
        ResumeAtForm,
        destructive=True,
    ),
    Action(
        "run_now",
        "reschedule_workflow",
        _("Run now"),
        _("The scheduled step becomes due now, however long it was to wait."),
        asks=False,
    ),
    Action(
        "reschedule",
        "reschedule_workflow",
        _("Reschedule"),
        _("The scheduled step becomes due at the time you give. A paused workflow stays paused."),
        RescheduleForm,
    ),
    Action(
        "pause",
        "pause_workflow",
        _("Pause"),
        _("A running step finishes, and no other starts until the workflow is resumed. Timers keep running."),
    ),
    Action(
        "skip",
        "skip_workflow_step",
        _("Skip the step"),
        _("The current step does not run, and the workflow continues with the next one."),
        destructive=True,
    ),
    Action(
        "signal",
        "signal_workflow",
        _("Send a signal"),
        _(
            "A step that waits for it is scheduled now. If none does, the signal is kept until a step waits for it."
        ),
        SignalForm,
    ),
    Action(
        "cancel",
        "cancel_workflow",
        _("Cancel"),
        _(
            "The workflow is canceled now, and no other step starts. A running step still finishes. "
            "This cannot be undone, but another workflow can be started."
        ),
        destructive=True,
    ),
)

BY_NAME = {action.name: action for action in ACTIONS}


def act_on(
    keys: list[Any], action: Action, form: ReasonForm, *, by: str, using: str
) -> tuple[int, list[tuple[Any, str]]]:
    """Take the action on each, as a valid form says.

    Returns
    -------
    tuple
        On how many it was taken, and the key and message of each that refused it.
    """
    done, failed = 0, []
    for key in keys:
        workflow = Workflow.objects.using(using).filter(pk=key).first()
        if workflow is None:
            failed.append((key, gettext("this workflow no longer exists")))
            continue
        try:
            perform(workflow, action.verb, form.arguments(), by=by, reason=form.cleaned_data["reason"])
            done += 1
        except GenevaDriveError as refused:
            failed.append((key, str(refused)))
    return done, failed


def why_not(action: Action, workflow: Workflow) -> str:
    """Return why the action would be refused now, or an empty text."""
    rows = StepExecution.objects.using(workflow._state.db)
    return allowed.why_not(action.verb, workflow, rows.filter(workflow_id=workflow.pk).active().first())


LISTED = 20
"""Workflows that a page names; of the others it gives the number."""


def forecast(action: Action, rows: Any, count: int) -> dict[str, Any]:
    """Return what the page says of a queryset of ``count`` workflows: how many will be refused, and why.

    It takes the same few queries, however many they are.
    """
    if not count:
        return {"impossible": gettext("No workflow matches.")}
    rule, condition = allowed.RULES[action.verb], allowed.condition(action.verb, rows.db)
    able = 0
    refused: list[tuple[Any, int]] = []
    by_state = (
        rows.order_by("state").values_list("state").annotate(Count("pk"), able=Count("pk", filter=condition))
    )
    for state, number, allowing in by_state:
        able += allowing
        if number > allowing:
            refused.append((WorkflowState(state).label, number - allowing))
    undeclared = (
        Selection(undeclared=True).apply(rows.filter(condition), rows.db).count() if rule.cannot else 0
    )
    others = rows.exclude(condition) if refused else rows.none()
    result = {
        "refused_count": sum(number for _state, number in refused),
        "refused_why": rule.reason,
        "refused_by_state": refused,
        "refused": list(others.defer("metadata", "job_options").order_by("pk")[:LISTED]),
        "undeclared": undeclared,
        "able": able - undeclared,
    }
    return (
        result if able > undeclared else {**result, "impossible": gettext("No chosen workflow allows this.")}
    )
