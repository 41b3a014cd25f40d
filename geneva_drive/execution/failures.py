"""From an exception to a decision: the policy that it meets, its wait, its handler.

All of it is the project's code, so it runs where bodies run: outside of locks and transactions, and what
comes of it is fenced like any other end.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from geneva_drive.conf import settings
from geneva_drive.definition import flow
from geneva_drive.definition.decisions import (
    Decision,
    ErrorRecord,
    Match,
    Then,
    decide_crash,
    decide_error,
    decide_handled,
    find_policy,
)
from geneva_drive.definition.policies import PolicyAction, Report
from geneva_drive.execution.perform import ClaimedExecution, handle
from geneva_drive.lifecycle import error_text
from geneva_drive.logs import about

logger = logging.getLogger("geneva_drive.errors")


@dataclass(frozen=True, slots=True)
class Failure:
    """What an exception led to.

    Attributes
    ----------
    reported
        What is logged as an error, after the commit. None: nothing.
    raised
        What the runner gets to see, after the commit. None when a policy has dealt with the exception.
    """

    decision: Decision
    reported: BaseException | None
    raised: BaseException | None


class _SecondError(Exception):
    """What the project's code raised while it dealt with an exception."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


def judge(claimed: ClaimedExecution, error: BaseException) -> Failure:
    """Decide by what a body, a precondition or a look-up raised. Raises nothing but a simulated death."""
    if not flow.is_failure(error):
        return Failure(_crash(claimed, error), error, error)
    try:
        return _by_policy(claimed, error)
    except _SecondError as trouble:
        second = trouble.__cause__
        assert second is not None
        return _twice(error, second, trouble.what)


def _crash(claimed: ClaimedExecution, error: BaseException) -> Decision:
    # SystemExit and its kind end processes: a crash, though this one could be caught.
    definition, execution = claimed.definition, claimed.execution
    return decide_crash(
        (definition.on_crash if definition is not None else None) or settings.RECOVERY_ACTION,
        error=error_text.record(error),
        crashes=execution.crashes,
        reattempts=claimed.reattempts,
        limit=settings.MAX_CRASHES,
    )


def _by_policy(claimed: ClaimedExecution, error: BaseException) -> Failure:
    record = error_text.record(error)
    match = _find(claimed, error)
    if match is None:
        return Failure(decide_error(record), error, error)
    if match.policy.handler is None:
        decision = _declared(claimed, match, record)
    else:
        handled = _handled(claimed, match, error, record)
        if handled is None:
            reason = f"the handler {match.policy.name!r} decided nothing"
            return Failure(decide_error(record, notes={"reason": reason}), error, error)
        decision = handled
    if claimed.definition is None and decision.then in (Then.SAME, Then.NEXT):
        # A failing look-up on a row whose step this code does not declare: there is neither that step nor
        # a next one.
        reason = f"the policy {match.policy.name!r} cannot be followed, for the step is not defined"
        return Failure(decide_error(record, notes={"reason": reason}), error, error)
    terminal = decision.then is not Then.SAME
    quiet = match.policy.report is Report.NEVER or (
        match.policy.report is Report.TERMINAL_ONLY and not terminal
    )
    return Failure(decision, None if quiet else error, None)


def _find(claimed: ClaimedExecution, error: BaseException) -> Match | None:
    definition = claimed.definition
    try:
        return find_policy(
            error,
            definition.policies if definition is not None else (),
            type(claimed.workflow)._geneva.policies,
        )
    except Exception as second:
        raise _SecondError("a policy's matching") from second


def _declared(claimed: ClaimedExecution, match: Match, record: ErrorRecord) -> Decision:
    wait = timedelta(0)
    if match.policy.action is PolicyAction.REATTEMPT:
        try:
            wait = match.policy.wait_before(claimed.reattempts + 1)
        except Exception as second:
            raise _SecondError("the policy's wait") from second
    return decide_error(
        record,
        match,
        reattempts=claimed.reattempts,
        crashes=claimed.execution.crashes,
        wait=wait,
    )


def _handled(
    claimed: ClaimedExecution, match: Match, error: BaseException, record: ErrorRecord
) -> Decision | None:
    try:
        control = handle(claimed, match.policy.handler, error)
    except BaseException as second:
        if getattr(second, "simulates_death", False) is True:
            raise
        raise _SecondError(f"the handler {match.policy.name!r}") from second
    if control is None:
        return None
    return decide_handled(
        control,
        record,
        match,
        reattempts=claimed.reattempts,
        crashes=claimed.execution.crashes,
    )


def _twice(error: BaseException, second: BaseException, what: str) -> Failure:
    """Pause with both recorded; the runner sees the second, which leads to the first."""
    notes = {"reason": f"{what} raised {type(second).__name__}"}
    if second is error:
        return Failure(decide_error(error_text.record(error), notes=notes), error, error)
    if second.__cause__ is None and second.__context__ is None:
        second.__context__ = error
    return Failure(decide_error(error_text.record_both(error, second, what), notes=notes), second, second)


def report(claimed: ClaimedExecution, error: BaseException) -> None:
    """Log an exception as an error, once, with its traceback. Never raises."""
    # Not the body's own instance, on which anything may have been set.
    workflow, execution = claimed.as_claimed(), claimed.execution
    message = error_text.record(error).message
    try:
        logger.error(
            "%s, step %s, execution %s failed: %s",
            workflow,
            execution.step_name,
            execution.pk,
            message,
            exc_info=error,
            extra=about(workflow, execution),
        )
    except Exception:  # noqa: BLE001 - a traceback is formatted by the exception's own code
        logger.error(
            "%s, step %s, execution %s failed: %s",
            workflow,
            execution.step_name,
            execution.pk,
            message,
            extra=about(workflow, execution),
        )
