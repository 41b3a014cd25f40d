"""What can be done by hand: its permission, its words, its form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Count
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from geneva_drive.admin.forms import NeededReasonForm, ReasonForm, RescheduleForm, ResumeAtForm, SignalForm
from geneva_drive.exceptions import GenevaDriveError, InvalidStateError, StepNotDefinedError
from geneva_drive.lifecycle import allowed
from geneva_drive.lifecycle.allowed import POSSIBLE
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.selection import Selection, possible
from geneva_drive.states import ACTIVE, ENDED, ONGOING, ExecutionState, WorkflowState
from geneva_drive.workflows import perform

if TYPE_CHECKING:
    Applies = Callable[[Workflow, StepExecution | None], bool]


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
        Words for the page that asks and for the button on a workflow's page.
    applies
        Whether a workflow with this active execution is offered it.
    explains
        What will happen, for the page that asks.
    asks
        Whether a workflow's own page asks before it is done. For many it is always asked.
    destructive
        Whether work may be lost by it; then a reason is required.
    """

    name: str
    call: str
    permission: str
    title: Any
    button: Any
    applies: Applies
    explains: Any
    form: type[ReasonForm] = ReasonForm
    asks: bool = True
    destructive: bool = False


def _is_paused(workflow: Workflow, _active: StepExecution | None) -> bool:
    return bool(workflow.state == WorkflowState.PAUSED)


def _can_resume(workflow: Workflow, _active: StepExecution | None) -> bool:
    return workflow.state == WorkflowState.PAUSED or workflow.pause_requested_at is not None


def _can_pause(workflow: Workflow, _active: StepExecution | None) -> bool:
    is_moving = workflow.state in (WorkflowState.READY, WorkflowState.PERFORMING)
    return bool(is_moving and workflow.pause_requested_at is None)


def _has_scheduled(_workflow: Workflow, active: StepExecution | None) -> bool:
    return active is not None and active.state == ExecutionState.SCHEDULED


def _is_ready_and_scheduled(workflow: Workflow, active: StepExecution | None) -> bool:
    return workflow.state == WorkflowState.READY and _has_scheduled(workflow, active)


def _can_skip(workflow: Workflow, _active: StepExecution | None) -> bool:
    # What comes after a step that this code does not know, nobody can tell.
    is_known = workflow.steps.resolve(workflow.next_step_name) is not None
    return is_known and workflow.state in (WorkflowState.READY, WorkflowState.PAUSED)


def _is_ongoing(workflow: Workflow, _active: StepExecution | None) -> bool:
    return workflow.state in ONGOING


ACTIONS: tuple[Action, ...] = (
    Action(
        "resume",
        "resume",
        "resume_workflow",
        _("Resume"),
        _("Resume"),
        _can_resume,
        _(
            "What was scheduled goes on, at its time or at once when that has passed; a failed step is tried again."
        ),
        asks=False,
    ),
    Action(
        "resume_at",
        "resume_at",
        "resume_workflow_at_step",
        _("Resume at a step"),
        _("Resume at…"),
        _is_paused,
        _("What was scheduled is canceled, and nothing before the step that you choose is looked at again."),
        ResumeAtForm,
        destructive=True,
    ),
    Action(
        "run_now",
        "reschedule",
        "reschedule_workflow",
        _("Run now"),
        _("Run now"),
        _is_ready_and_scheduled,
        _("The scheduled step becomes due at once, whatever it was waiting for."),
        asks=False,
    ),
    Action(
        "reschedule",
        "reschedule",
        "reschedule_workflow",
        _("Reschedule"),
        _("Reschedule…"),
        _has_scheduled,
        _("The scheduled step becomes due at the time that you give. A paused workflow stays paused."),
        RescheduleForm,
    ),
    Action(
        "pause",
        "pause",
        "pause_workflow",
        _("Pause"),
        _("Pause…"),
        _can_pause,
        _("A step in flight finishes; nothing begins until they are resumed. Timers keep running."),
    ),
    Action(
        "skip",
        "skip",
        "skip_workflow_step",
        _("Skip the step"),
        _("Skip…"),
        _can_skip,
        _("The step that is scheduled or pointed at is not run, and the workflow goes on with the next one."),
        NeededReasonForm,
        destructive=True,
    ),
    Action(
        "signal",
        "signal",
        "signal_workflow",
        _("Send a signal"),
        _("Send signal…"),
        _is_ongoing,
        _("A step that waits for it goes on; otherwise it is kept until one does."),
        SignalForm,
    ),
    Action(
        "cancel",
        "cancel",
        "cancel_workflow",
        _("Cancel"),
        _("Cancel…"),
        _is_ongoing,
        _(
            "Each is canceled at once and nothing follows; a step in flight still finishes. This cannot be "
            "undone; another run can be started."
        ),
        NeededReasonForm,
        destructive=True,
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


_LISTED = 20
_AT_A_STEP = ("resume", "skip")
"""What needs the step that the workflow stands at."""
_REASONS = {
    "resume": _("only a paused workflow can be resumed"),
    "pause": _("only a ready or performing workflow can be paused"),
    "skip": _("only a ready or paused workflow can be moved past a step"),
    "cancel": _("only an ongoing workflow can be canceled"),
    "signal": _("a signal reaches only an ongoing workflow"),
    "reschedule": _("only a workflow with a scheduled step can be moved in time"),
}


def why_not(action: Action, workflow: Workflow) -> str:
    """Return why it cannot be done to the workflow as it is now, or an empty text."""
    using = str(workflow._state.db)
    if action.call == "signal":
        words = {"workflow": workflow, "state": workflow.state}
        text = gettext("%(workflow)s is %(state)s; a signal reaches nobody.")
        return text % words if workflow.state in ENDED else ""
    active = StepExecution.objects.using(using).filter(workflow_id=workflow.pk, state__in=ACTIVE).first()
    try:
        # Of a step to resume at the form says what can be chosen.
        allowed.check(action.call, workflow, active)
    except (InvalidStateError, StepNotDefinedError) as error:
        return str(error)
    return ""


_BY_STATE_ALONE = ("pause", "skip", "signal", "cancel")
"""What is refused by a workflow's state, without a look at anything else."""


def forecast(action: Action, rows: Any, count: int) -> dict[str, Any]:
    """Return what the page says of a queryset of ``count`` workflows: how many will be refused, and why.

    Each number is one count over what the page counts anyway, however many they are.
    """
    if not count:
        return {"impossible": gettext("No workflow matches.")}
    if action.call == "resume_at":
        return {}  # the choice of a step says more
    condition = possible(action.call, rows.db)
    able_rows = rows.filter(condition)
    all_by_state = _by_state(rows)
    if action.call in _BY_STATE_ALONE:
        able_by_state = {
            state: number for state, number in all_by_state.items() if state in POSSIBLE[action.call]
        }
    else:
        able_by_state = _by_state(able_rows)
    able = sum(able_by_state.values())
    undeclared = (
        Selection(undeclared=True).apply(able_rows, rows.db).count() if action.call in _AT_A_STEP else 0
    )
    refused = {state: number - able_by_state.get(state, 0) for state, number in all_by_state.items()}
    by_state = [
        (WorkflowState(state).label, number) for state, number in sorted(refused.items()) if number > 0
    ]
    others = rows.exclude(condition) if by_state else rows.none()
    told = {
        "refused_count": sum(number for _state, number in by_state),
        "refused_why": _REASONS[action.call],
        "refused_by_state": by_state,
        "refused": list(others.defer("metadata", "job_options").order_by("pk")[:_LISTED]),
        "undeclared": undeclared,
        "able": max(0, able - undeclared),
    }
    if able > undeclared:
        return told
    return {**told, "impossible": gettext("This can be done to none of them.")}


def _by_state(rows: Any) -> dict[str, int]:
    return dict(rows.order_by("state").values_list("state").annotate(Count("pk")))
