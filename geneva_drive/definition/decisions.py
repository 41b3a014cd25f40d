"""Decisions: pure functions from how an execution ended to what follows.

The policy for an exception is the first match of: the step's specific policies in order; its first blanket one;
the class's specific ones, the latest declared first; the class's latest blanket one. Without a match the workflow
pauses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import Any

from django.utils.module_loading import import_string

from geneva_drive.definition import flow
from geneva_drive.definition.policies import LEAST_UNLIMITED_WAIT, Policy, PolicyAction
from geneva_drive.exceptions import StepConfigurationError
from geneva_drive.states import ExecutionState, Outcome


@dataclass(frozen=True, slots=True)
class Match:
    """The policy for an exception, and the cap of its reattempts.

    The policies of a step share one count, so the cap is the smallest of their caps.
    """

    policy: Policy
    cap: int | None


def find_policy(error: BaseException, of_step: Sequence[Policy], of_class: Sequence[Policy]) -> Match | None:
    """Return the policy for `error`, or None.

    Parameters
    ----------
    of_step, of_class
        In the order of declaration, those of base classes first.

    Raises
    ------
    Exception
        What a matcher raised, or StepConfigurationError for a dotted name that is not an exception class.
    """
    for policy in _specific_first(of_step):
        if matches(policy, error):
            caps = (each.cap for each in of_step if each.may_reattempt and each.cap is not None)
            return Match(policy, min(caps, default=None))
    for policy in _specific_first(of_class[::-1]):
        if matches(policy, error):
            return Match(policy, policy.cap)
    return None


def _specific_first(policies: Sequence[Policy]) -> Iterator[Policy]:
    yield from (policy for policy in policies if not policy.is_blanket)
    yield from (policy for policy in policies if policy.is_blanket)


def matches(policy: Policy, error: BaseException) -> bool:
    """Whether `policy` is meant for `error`."""
    return policy.is_blanket or any(_fits(matcher, error) for matcher in policy.matchers)


def _fits(matcher: Any, error: BaseException) -> bool:
    if isinstance(matcher, str):
        matcher = _resolved(matcher)
    if not isinstance(matcher, type):
        return bool(matcher.matches(error))
    if isinstance(error, matcher):
        return True
    # A TaskGroup raises a group of what its tasks raised. It matches if all failures in it match; flow control
    # is not a failure.
    if not isinstance(error, BaseExceptionGroup):
        return False
    failures = [each for each in error.exceptions if flow.is_failure(each)]
    return bool(failures) and all(_fits(matcher, each) for each in failures)


def _resolved(name: str) -> type[Exception]:
    try:
        found = import_string(name)
    except ImportError as error:
        raise StepConfigurationError(
            f"A policy's matching={name!r} cannot be imported ({error}). Correct the name."
        ) from error
    if not (isinstance(found, type) and issubclass(found, Exception)):
        raise StepConfigurationError(
            f"A policy's matching={name!r} is {found!r}, which is not an exception class. Correct the name."
        )
    return found


class Then(Enum):
    """What happens to the workflow."""

    NEXT = "next"  # the next runnable step, or finish
    SAME = "same"  # another attempt at the same step
    PAUSE = "pause"
    CANCEL = "cancel"
    FINISH = "finish"
    NOTHING = "nothing"  # something else has moved it already


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """An exception in storable form: see ``lifecycle.error_text``."""

    class_name: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Decision:
    """How an execution ends, and what follows.

    With ``Then.SAME``, ``wait`` is the time until the next attempt (None: the step's own), ``crashes`` and
    ``reattempts`` (by policy) are its consecutive counts, and with ``rewind`` it starts without the cursor.
    ``error`` and ``notes`` are recorded on the row that ends.
    """

    state: ExecutionState
    outcome: Outcome
    then: Then
    wait: timedelta | None = None
    crashes: int = 0
    reattempts: int = 0
    rewind: bool = False
    error: ErrorRecord | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def gives_way(self) -> bool:
        """Whether the dispatcher gets what follows, so that other work can run first."""
        return self.outcome is Outcome.CONTINUED


SUCCESS = Decision(ExecutionState.COMPLETED, Outcome.SUCCESS, Then.NEXT)
PASSED_OVER = Decision(ExecutionState.SKIPPED, Outcome.SKIPPED, Then.NEXT)
"""For a gravestone, a ``skip_if`` that holds, an operator's skip."""
CANCEL_CONDITION = Decision(
    ExecutionState.CANCELED, Outcome.CANCELED, Then.CANCEL, notes={"reason": "a cancel_if condition holds"}
)
HERO_MISSING = Decision(
    ExecutionState.CANCELED, Outcome.CANCELED, Then.CANCEL, notes={"reason": "the hero is missing"}
)
CANCELED_MEANWHILE = Decision(ExecutionState.CANCELED, Outcome.CANCELED, Then.NOTHING)
"""The workflow was moved out of ``performing`` while the body ran."""


_FLOWS = {
    flow.Finish: (ExecutionState.COMPLETED, Outcome.SUCCESS, Then.FINISH),
    flow.Skip: (ExecutionState.SKIPPED, Outcome.SKIPPED, Then.NEXT),
    flow.Cancel: (ExecutionState.CANCELED, Outcome.CANCELED, Then.CANCEL),
    flow.Pause: (ExecutionState.CANCELED, Outcome.WORKFLOW_PAUSED, Then.PAUSE),
    flow.Reattempt: (ExecutionState.COMPLETED, Outcome.REATTEMPTED, Then.SAME),
    flow.Suspend: (ExecutionState.COMPLETED, Outcome.CONTINUED, Then.SAME),
}


def decide_flow(control: flow.FlowControl) -> Decision:
    """Decide by the flow control that a step raised."""
    if type(control) not in _FLOWS:
        raise TypeError(f"{control!r} is not flow control of a step.")
    state, outcome, then = _FLOWS[type(control)]
    notes = {"reason": control.reason} if control.reason else {}
    return Decision(state, outcome, then, wait=control.wait, rewind=control.rewind, notes=notes)


_ENDS = {
    PolicyAction.PAUSE: (ExecutionState.FAILED, Outcome.FAILED, Then.PAUSE),
    PolicyAction.CANCEL: (ExecutionState.FAILED, Outcome.CANCELED, Then.CANCEL),
    PolicyAction.SKIP: (ExecutionState.SKIPPED, Outcome.SKIPPED, Then.NEXT),
}


def decide_error(
    error: ErrorRecord,
    match: Match | None = None,
    *,
    reattempts: int = 0,
    crashes: int = 0,
    wait: timedelta = timedelta(0),
    rewind: bool = False,
    notes: dict[str, Any] | None = None,
) -> Decision:
    """Decide by an exception.

    Parameters
    ----------
    match
        None: the exception is recorded, and the workflow pauses at the step.
    reattempts, crashes
        The consecutive ones before this attempt.
    wait
        The time before a reattempt.
    """
    if match is None:
        return _end(PolicyAction.PAUSE, error, dict(notes or {}))
    policy = match.policy
    notes = {"policy": policy.name, **(notes or {})}
    if policy.action is not None and policy.action is not PolicyAction.REATTEMPT:
        return _end(policy.action, error, notes)
    if match.cap is not None and reattempts >= match.cap:
        notes["reason"] = f"used up its reattempts: {reattempts} in a row"
        return _end(policy.terminal_action, error, notes)
    if match.cap is None:
        wait = max(wait, LEAST_UNLIMITED_WAIT)
    return Decision(
        ExecutionState.COMPLETED,
        Outcome.REATTEMPTED,
        Then.SAME,
        wait=wait,
        # Kept, so that a step that fails and crashes in turn reaches one of the limits.
        crashes=crashes,
        reattempts=reattempts + 1,
        rewind=rewind,
        error=error,
        notes=notes,
    )


def decide_handled(
    control: flow.FlowControl, error: ErrorRecord, match: Match, *, reattempts: int, crashes: int
) -> Decision:
    """Decide by the flow control that an exception handler raised, and record the error."""
    notes = {"policy": match.policy.name}
    if control.reason:
        notes["reason"] = control.reason
    if isinstance(control, flow.Reattempt):
        return decide_error(
            error,
            match,
            reattempts=reattempts,
            crashes=crashes,
            wait=control.wait or timedelta(0),
            rewind=control.rewind,
            notes=notes,
        )
    if isinstance(control, flow.Pause | flow.Cancel | flow.Skip):
        return _end(PolicyAction(control.word), error, notes)
    return replace(decide_flow(control), error=error, notes=notes)


def _end(action: PolicyAction, error: ErrorRecord, notes: dict[str, Any]) -> Decision:
    state, outcome, then = _ENDS[action]
    return Decision(state, outcome, then, error=error, notes=notes)


def decide_crash(
    action: str,
    *,
    error: ErrorRecord,
    crashes: int,
    limit: int,
    reattempts: int = 0,
    counts: bool = True,
) -> Decision:
    """Decide by a crash: the process died, or the body raised an exception that ends processes.

    Parameters
    ----------
    action
        ``reattempt``, ``pause`` or ``cancel``.
    crashes, reattempts
        The consecutive ones before this crash, which changes only the first.
    limit
        At this many crashes ``reattempt`` pauses the workflow.
    counts
        Whether the crash counts against the step. Not if the body may never have started.
    """
    crashes += counts
    then = {"reattempt": Then.SAME, "pause": Then.PAUSE, "cancel": Then.CANCEL}[action]
    notes: dict[str, Any] = {"crashes": crashes}
    if then is Then.SAME and crashes >= limit:
        then = Then.PAUSE
        notes["reason"] = f"crashed {crashes} times in a row"
    return Decision(
        ExecutionState.FAILED,
        Outcome.RECOVERED,
        then,
        wait=timedelta(0),
        crashes=crashes,
        reattempts=reattempts,
        error=error,
        notes=notes,
    )
