"""Which policy an exception meets.

The step's single policy, or its list: the specific ones in order, then the first blanket one → the class's
specific ones, the latest declared first → the class's latest blanket one → none, and the workflow pauses.
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
    """The policy that was found, and the limit that holds where it was found.

    Attributes
    ----------
    cap
        Of a step's list the smallest limit of all its policies, since they share one count.
    """

    policy: Policy
    cap: int | None


def find_policy(error: BaseException, of_step: Sequence[Policy], of_class: Sequence[Policy]) -> Match | None:
    """Return the policy for `error`, or None.

    Parameters
    ----------
    of_step
        In the order that they were written.
    of_class
        In the order that they were declared, those of base classes first.

    Raises
    ------
    Exception
        What a matcher raised, or a dotted name that names no exception class.
    """
    for policy in _specific_first(of_step):
        if matches(policy, error):
            return Match(policy, _smallest_cap(of_step))
    for policy in _specific_first(of_class[::-1]):
        if matches(policy, error):
            return Match(policy, policy.cap)
    return None


def _specific_first(policies: Sequence[Policy]) -> Iterator[Policy]:
    yield from (policy for policy in policies if not policy.is_blanket)
    yield from (policy for policy in policies if policy.is_blanket)


def _smallest_cap(policies: Sequence[Policy]) -> int | None:
    caps = [policy.cap for policy in policies if policy.may_reattempt and policy.cap is not None]
    return min(caps, default=None)


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
    # What a TaskGroup raises wraps what its tasks raised. It fits when there is no other failure in it; the
    # flow control of another task is none.
    if not isinstance(error, BaseExceptionGroup):
        return False
    failures = [each for each in error.exceptions if flow.is_failure(each)]
    return bool(failures) and all(_fits(matcher, each) for each in failures)


def _resolved(name: str) -> type[Exception]:
    try:
        found = import_string(name)
    except ImportError as error:
        raise StepConfigurationError(
            f"A policy's matching={name!r} names nothing that can be imported ({error}). Correct the name."
        ) from error
    if not (isinstance(found, type) and issubclass(found, Exception)):
        raise StepConfigurationError(
            f"A policy's matching={name!r} is {found!r}, which is not an exception class. Correct the name."
        )
    return found


class Then(Enum):
    """What becomes of the workflow."""

    NEXT = "next"  # on to the next runnable step, or finish
    SAME = "same"  # another attempt at the same step
    PAUSE = "pause"
    CANCEL = "cancel"
    FINISH = "finish"
    NOTHING = "nothing"  # it is not ours to move any more


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """An exception in storable form: see ``lifecycle.errors``."""

    class_name: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Decision:
    """How an execution ends, and what follows.

    ``wait`` belongs to what follows (``Then.SAME``): None means the step's own. ``crashes`` and
    ``reattempts`` (by policy) are what the next attempt carries on its row: how many of each there were in
    a row; with ``rewind`` it does not carry the cursor of a resumable step. ``error`` and ``notes`` are
    recorded on the row that ends.
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
        """Whether what follows is left to the dispatcher, so that other work gets its turn."""
        return self.outcome is Outcome.CONTINUED


SUCCESS = Decision(ExecutionState.COMPLETED, Outcome.SUCCESS, Then.NEXT)
PASSED_OVER = Decision(ExecutionState.SKIPPED, Outcome.SKIPPED, Then.NEXT)
"""A gravestone, a ``skip_if`` that holds, an operator's skip."""
CANCEL_CONDITION = Decision(
    ExecutionState.CANCELED, Outcome.CANCELED, Then.CANCEL, notes={"reason": "a cancel_if condition holds"}
)
HERO_MISSING = Decision(
    ExecutionState.CANCELED, Outcome.CANCELED, Then.CANCEL, notes={"reason": "the hero is missing"}
)
CANCELED_MEANWHILE = Decision(ExecutionState.CANCELED, Outcome.CANCELED, Then.NOTHING)
"""The workflow left ``performing`` while the body ran."""


def decide_flow(control: flow.FlowControl) -> Decision:
    """Decide by the flow control that a step ended itself with."""
    notes = {"reason": control.reason} if control.reason else {}
    match control:
        case flow.Finish():
            return Decision(ExecutionState.COMPLETED, Outcome.SUCCESS, Then.FINISH, notes=notes)
        case flow.Skip():
            return Decision(ExecutionState.SKIPPED, Outcome.SKIPPED, Then.NEXT, notes=notes)
        case flow.Cancel():
            return Decision(ExecutionState.CANCELED, Outcome.CANCELED, Then.CANCEL, notes=notes)
        case flow.Pause():
            return Decision(ExecutionState.CANCELED, Outcome.WORKFLOW_PAUSED, Then.PAUSE, notes=notes)
        case flow.Reattempt():
            return Decision(
                ExecutionState.COMPLETED,
                Outcome.REATTEMPTED,
                Then.SAME,
                wait=control.wait or timedelta(0),
                rewind=control.rewind,
                notes=notes,
            )
        case flow.Suspend():
            return Decision(
                ExecutionState.COMPLETED, Outcome.CONTINUED, Then.SAME, wait=control.wait, notes=notes
            )
    raise TypeError(f"{control!r} is no flow control of a step.")


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
        The policy that it met. None: it is recorded, and the workflow pauses at that step.
    reattempts, crashes
        How many there were in a row before this attempt.
    wait
        Before the reattempt, if there is one.
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
        # A step that fails and crashes in turn ends at the limit of either.
        crashes=crashes,
        reattempts=reattempts + 1,
        rewind=rewind,
        error=error,
        notes=notes,
    )


def decide_handled(
    control: flow.FlowControl, error: ErrorRecord, match: Match, *, reattempts: int, crashes: int
) -> Decision:
    """Decide by the flow control that a handler of exceptions called: as a policy would, error and all."""
    notes = {"policy": match.policy.name}
    if control.reason:
        notes["reason"] = control.reason
    match control:
        case flow.Pause():
            return _end(PolicyAction.PAUSE, error, notes)
        case flow.Cancel():
            return _end(PolicyAction.CANCEL, error, notes)
        case flow.Skip():
            return _end(PolicyAction.SKIP, error, notes)
        case flow.Reattempt():
            return decide_error(
                error,
                match,
                reattempts=reattempts,
                crashes=crashes,
                wait=control.wait,
                rewind=control.rewind,
                notes=notes,
            )
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
    """Decide by a crash: the process died, or a body raised what ends processes.

    Parameters
    ----------
    action
        ``reattempt``, ``pause`` or ``cancel``.
    crashes
        Consecutive crashes of this step before this one.
    limit
        At so many, the workflow pauses whatever the action.
    reattempts
        Consecutive reattempts by policy before this one, a count of its own that a crash leaves as it is.
    counts
        Whether this crash is the step's own doing. Not when the body may never have begun.
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
