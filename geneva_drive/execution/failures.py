"""Turn an exception into a decision: the policy that applies, its wait, its handler.

All of it is the project's code, so it runs where bodies run: outside of locks and transactions, and its
result is fenced like any other end.
"""

from __future__ import annotations

import logging
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
from geneva_drive.execution.perform import ClaimedExecution, handle, is_simulated_death
from geneva_drive.lifecycle import error_text
from geneva_drive.logs import about

logger = logging.getLogger("geneva_drive.errors")


class _SecondError(Exception):
    """What the project's code raised while it dealt with an exception."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


def judge(claimed: ClaimedExecution, error: BaseException) -> Decision:
    """Decide by what a body, a precondition or a look-up raised. Raises nothing but a simulated death.

    Notes on ``claimed`` what to log and to raise after the commit.
    """
    # Unless a policy deals with it.
    claimed.reported = claimed.raised = error
    definition = claimed.definition
    if not flow.is_failure(error):
        # SystemExit and its kind end processes: a crash, though this one could be caught.
        return decide_crash(
            (definition.on_crash if definition is not None else None) or settings.RECOVERY_ACTION,
            error=error_text.record(error),
            crashes=claimed.execution.crashes,
            reattempts=claimed.reattempts,
            limit=settings.MAX_CRASHES,
        )
    try:
        return _decide_by_policy(claimed, error)
    except _SecondError as trouble:
        second = trouble.__cause__
        assert second is not None
        notes = {"reason": f"{trouble.what} raised {type(second).__name__}"}
        if second is error:
            return decide_error(error_text.record(error), notes=notes)
        # Both are recorded; the runner sees the second, which leads to the first.
        if second.__cause__ is None and second.__context__ is None:
            second.__context__ = error
        claimed.reported = claimed.raised = second
        return decide_error(error_text.record_both(error, second, trouble.what), notes=notes)


def _decide_by_policy(claimed: ClaimedExecution, error: BaseException) -> Decision:
    definition = claimed.definition
    record = error_text.record(error)
    try:
        match = find_policy(
            error,
            definition.policies if definition is not None else (),
            type(claimed.workflow)._geneva.policies,
        )
    except Exception as second:
        raise _SecondError("a policy's matching") from second
    if match is None:
        return decide_error(record)
    policy = match.policy
    if policy.handler is None:
        decision = _decide_declared(claimed, match, record)
    else:
        handled = _decide_handled(claimed, match, error, record)
        if handled is None:
            return decide_error(record, notes={"reason": f"the handler {policy.name!r} decided nothing"})
        decision = handled
    if definition is None and decision.then in (Then.SAME, Then.NEXT):
        # A failing look-up on a row whose step this code does not declare: there is neither that step nor
        # a next one.
        reason = f"the policy {policy.name!r} cannot be followed, for the step is not defined"
        return decide_error(record, notes={"reason": reason})
    claimed.raised = None
    terminal = decision.then is not Then.SAME
    if policy.report is Report.NEVER or (policy.report is Report.TERMINAL_ONLY and not terminal):
        claimed.reported = None
    return decision


def _decide_declared(claimed: ClaimedExecution, match: Match, record: ErrorRecord) -> Decision:
    wait = timedelta(0)
    if match.policy.action is PolicyAction.REATTEMPT:
        try:
            wait = match.policy.wait_before(claimed.reattempts + 1)
        except Exception as second:
            raise _SecondError("the policy's wait") from second
    return decide_error(
        record, match, reattempts=claimed.reattempts, crashes=claimed.execution.crashes, wait=wait
    )


def _decide_handled(
    claimed: ClaimedExecution, match: Match, error: BaseException, record: ErrorRecord
) -> Decision | None:
    try:
        control = handle(claimed, match.policy.handler, error)
    except BaseException as second:
        if is_simulated_death(second):
            raise
        raise _SecondError(f"the handler {match.policy.name!r}") from second
    if control is None:
        return None
    return decide_handled(
        control, record, match, reattempts=claimed.reattempts, crashes=claimed.execution.crashes
    )


def report(claimed: ClaimedExecution, error: BaseException) -> None:
    """Log an exception as an error, once, with its traceback. Never raises."""
    # Not the body's own instance, on which anything may have been set.
    workflow, execution = claimed.as_claimed(), claimed.execution
    message = "%s, step %s, execution %s failed: %s"
    values = (workflow, execution.step_name, execution.pk, error_text.record(error).message)
    extra = about(workflow, execution)
    try:
        logger.error(message, *values, exc_info=error, extra=extra)
    except Exception:  # noqa: BLE001 - a traceback is formatted by the exception's own code
        logger.error(message, *values, extra=extra)
