"""What an action would refuse, said before it is asked for: in the words of the controls that would refuse it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import Count
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from geneva_drive.exceptions import InvalidStateError, StepNotDefinedError
from geneva_drive.lifecycle import allowed
from geneva_drive.lifecycle.allowed import POSSIBLE
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.reports.selection import Selection, possible
from geneva_drive.states import ACTIVE, ENDED, WorkflowState

if TYPE_CHECKING:
    from geneva_drive.admin.actions import Action
    from geneva_drive.models.workflow import Workflow

__all__ = ["forecast", "why_not"]

_LISTED = 20
_AT_A_STEP = ("resume", "skip")
"""What needs the step that the workflow stands at."""
_REASONS = {
    "resume": gettext_lazy("only a paused workflow can be resumed"),
    "pause": gettext_lazy("only a ready or performing workflow can be paused"),
    "skip": gettext_lazy("only a ready or paused workflow can be moved past a step"),
    "cancel": gettext_lazy("only an ongoing workflow can be canceled"),
    "signal": gettext_lazy("a signal reaches only an ongoing workflow"),
    "reschedule": gettext_lazy("only a workflow with a scheduled step can be moved in time"),
}


def why_not(action: Action, workflow: Workflow) -> str:
    """Return why it cannot be done to the workflow as it is now, or an empty text."""
    using = str(workflow._state.db)
    if action.call == "signal":
        words = {"workflow": workflow, "state": workflow.state}
        text = _("%(workflow)s is %(state)s; a signal reaches nobody.")
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
        return {"impossible": _("No workflow matches.")}
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
        Selection(stranded=True).apply(able_rows, rows.db).count() if action.call in _AT_A_STEP else 0
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
    return {**told, "impossible": _("This can be done to none of them.")}


def _by_state(rows: Any) -> dict[str, int]:
    return dict(rows.order_by("state").values_list("state").annotate(Count("pk")))
