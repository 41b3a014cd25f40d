"""The table of states and verbs: what may be done to a workflow now, and why not.

A method asks with the rows locked, just before it acts. Commands and the admin ask without locks, to say beforehand
what would be refused; the workflow can still move in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from geneva_drive.definition.collection import StepDefinition
from geneva_drive.exceptions import GenevaDriveError, InvalidStateError, StepNotDefinedError
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.states import ONGOING, ExecutionState, WorkflowState


@dataclass(frozen=True)
class Rule:
    """When a verb is allowed."""

    states: tuple[WorkflowState, ...]  # of the workflow
    reason: Any  # why it is refused in any other state, for people
    # For a verb that needs the step where the workflow stands to be declared: what cannot be done
    # otherwise.
    cannot: str = ""
    needs_scheduled: bool = False  # whether it acts on a scheduled execution; a waiting one will not do


_READY, _PERFORMING, _PAUSED = WorkflowState.READY, WorkflowState.PERFORMING, WorkflowState.PAUSED

RULES: dict[str, Rule] = {
    "pause": Rule((_READY, _PERFORMING), _("only a ready or performing workflow can be paused")),
    # Also a performing one that was asked to pause: see `withdraws_a_pause`.
    "resume": Rule((_PAUSED,), _("only a paused workflow can be resumed"), cannot="be resumed"),
    "resume_at": Rule((_PAUSED,), _("only a paused workflow can be resumed at a step")),
    "skip": Rule(
        (_READY, _PAUSED), _("only a ready or paused workflow can skip a step"), cannot="skip its step"
    ),
    "cancel": Rule(ONGOING, _("only an ongoing workflow can be canceled")),
    "signal": Rule(ONGOING, _("only an ongoing workflow can receive a signal")),
    "reschedule": Rule(
        (_READY, _PAUSED), _("only a workflow with a scheduled step can be rescheduled"), needs_scheduled=True
    ),
}


def withdraws_a_pause(workflow: Workflow) -> bool:
    """Whether resuming it withdraws a pause that was requested while its step is still running."""
    return workflow.state == _PERFORMING and workflow.pause_requested_at is not None


def check(
    verb: str, workflow: Workflow, active: StepExecution | None = None, *, step: str | None = None
) -> StepDefinition | None:
    """Refuse what is not allowed.

    Parameters
    ----------
    active
        The workflow's active execution, for the verbs that need it: "resume", "skip" and "reschedule".
    step
        For "resume_at": where. None checks the state alone.

    Returns
    -------
    StepDefinition | None
        The step to resume at, or the one where the workflow stands if the verb needs it.

    Raises
    ------
    InvalidStateError, StepNotDefinedError
        With a message for people.
    """
    rule = RULES[verb]
    if verb == "resume" and withdraws_a_pause(workflow):
        return None
    is_scheduled = active is not None and active.state == ExecutionState.SCHEDULED
    if workflow.state not in rule.states or (rule.needs_scheduled and not is_scheduled):
        raise InvalidStateError(refusal(verb, workflow))
    if verb == "resume_at" and step is not None:
        return _target(workflow, step)
    if rule.cannot:
        return _declared(workflow, active.step_name if active is not None else workflow.next_step_name, rule)
    return None


def why_not(verb: str, workflow: Workflow, active: StepExecution | None) -> str:
    """Return why the verb would be refused, or an empty text."""
    try:
        check(verb, workflow, active)
    except GenevaDriveError as error:
        return str(error)
    return ""


def refusal(verb: str, workflow: Workflow) -> str:
    """Return the message for a workflow in a wrong state."""
    words = {"workflow": workflow, "state": workflow.state, "reason": RULES[verb].reason}
    return gettext("%(workflow)s is %(state)s: %(reason)s.") % words


def condition(verb: str, using: str) -> Q:
    """Return the condition of the rows whose states allow the verb. Their steps are not looked at."""
    rule = RULES[verb]
    found = Q(state__in=rule.states)
    if verb == "resume":
        found |= Q(state=_PERFORMING, pause_requested_at__isnull=False)
    if rule.needs_scheduled:
        found &= Q(pk__in=StepExecution.objects.using(using).scheduled().order_by().values("workflow_id"))
    return found


def _target(workflow: Workflow, step: str) -> StepDefinition:
    definition = workflow.steps.resolve(step)
    if definition is not None and not definition.removed:
        return definition
    what = "not defined" if definition is None else "a removed step"
    raise StepNotDefinedError(
        f"{workflow} cannot be resumed at {step!r}, which is {what} in {workflow.type}. {_runnable(workflow)}"
    )


def _declared(workflow: Workflow, name: str | None, rule: Rule) -> StepDefinition | None:
    """Return the definition of a stored name; None for a workflow that stands at no step."""
    if name is None:
        return None
    if not type(workflow)._geneva.is_startable:
        raise StepNotDefinedError(
            f"{workflow} cannot {rule.cannot}: {_runnable(workflow)} Options: cancel(), declare the class again, "
            "or add it to the former_types of the class that replaced it."
        )
    definition = workflow.steps.resolve(name)
    if definition is None:
        pause_first = "" if workflow.state == _PAUSED else "pause(), then "
        raise StepNotDefinedError(
            f"{workflow} cannot {rule.cannot}: its step {name!r} is not defined in {workflow.type}. "
            f"{_runnable(workflow)} Options: {pause_first}resume_at() with one of these steps, "
            "cancel(), or declare the step "
            f"again. Next time, leave a gravestone in place of the step: {name} = removed_step()."
        )
    return definition


def _runnable(workflow: Workflow) -> str:
    if not type(workflow)._geneva.is_startable:
        return f"This code declares no workflow class {workflow.type!r}."
    names = ", ".join(step.name for step in workflow.steps.runnable)
    return (
        f"Steps to resume at: {names}." if names else "This code declares no runnable step for this workflow."
    )
