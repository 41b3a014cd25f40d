"""Decisions about what follows an event, as a table and as invariants."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geneva_drive.definition import flow
from geneva_drive.definition.decisions import (
    Decision,
    ErrorRecord,
    Match,
    Then,
    decide_crash,
    decide_error,
    decide_flow,
    decide_handled,
)
from geneva_drive.definition.policies import Policy, PolicyAction
from geneva_drive.states import MOVES, ExecutionState, Outcome, WorkflowState

ERROR = ErrorRecord("shop.Busy", "busy", "Traceback …")
HOUR = timedelta(hours=1)

PAUSE = ("failed", "failed", Then.PAUSE)
CANCEL = ("failed", "canceled", Then.CANCEL)
SKIP = ("skipped", "skipped", Then.NEXT)
AGAIN = ("completed", "reattempted", Then.SAME)
FINISH = ("completed", "success", Then.FINISH)

ENDS = {"pause": PAUSE, "cancel": CANCEL, "skip": SKIP}


def shape(decision: Decision) -> tuple[str, str, Then]:
    return (str(decision.state), str(decision.outcome), decision.then)


def match(action: str | None = None, *, cap: int | None = 100, terminal: str = "pause") -> Match:
    policy = Policy(
        action=PolicyAction(action) if action else None,
        cap=cap,
        terminal_action=PolicyAction(terminal),
        handler=None if action else "handle",
        name=action or "handle",
    )
    return Match(policy, cap)


def by_policy(match: Match, done: int) -> Decision:
    return decide_error(ERROR, match, reattempts=done, crashes=1, wait=HOUR)


def by_handler(match: Match, done: int) -> Decision:
    """A handler that requests what the policy would do."""
    return decide_handled(flow.Reattempt(HOUR), ERROR, match, reattempts=done, crashes=1)


# Action by decider, limit and number of reattempts.
TABLE = [
    *[(by_policy, action, None, 0, end) for action, end in ENDS.items()],
    *[(by_policy, action, 3, 50, end) for action, end in ENDS.items()],
    *[
        (decide, "reattempt" if decide is by_policy else None, cap, done, expected)
        for decide in (by_policy, by_handler)
        for cap, done, expected in [
            (0, 0, PAUSE),
            (1, 0, AGAIN),
            (1, 1, PAUSE),
            (3, 2, AGAIN),
            (3, 3, PAUSE),
            (3, 4, PAUSE),
            (100, 99, AGAIN),
            (100, 100, PAUSE),
            (None, 0, AGAIN),
            (None, 10**9, AGAIN),
        ]
    ],
]


@pytest.mark.parametrize(("decide", "action", "cap", "done", "expected"), TABLE)
def test_action_and_limit(decide: Any, action: str | None, cap: int | None, done: int, expected: Any) -> None:
    decision = decide(match(action, cap=cap), done)

    assert shape(decision) == expected
    assert decision.error is ERROR
    if expected is AGAIN:
        assert decision.wait == HOUR
        assert decision.reattempts == done + 1
        assert decision.crashes == 1
    else:
        assert decision.reattempts == decision.crashes == 0


@pytest.mark.parametrize("terminal", ["pause", "cancel", "skip"])
@pytest.mark.parametrize("decide", [by_policy, by_handler])
def test_the_terminal_action_follows_the_last_reattempt(decide: Any, terminal: str) -> None:
    decision = decide(match("reattempt" if decide is by_policy else None, cap=2, terminal=terminal), 2)

    assert shape(decision) == ENDS[terminal]
    assert decision.notes["reason"] == "used up its reattempts: 2 in a row"


def test_without_a_policy_the_error_is_recorded_and_the_workflow_pauses() -> None:
    decision = decide_error(ERROR, notes={"reason": "for a test"})

    assert shape(decision) == PAUSE
    assert decision.error is ERROR
    assert decision.notes == {"reason": "for a test"}


@pytest.mark.parametrize(
    ("control", "expected"),
    [
        (flow.Pause("busy"), PAUSE),
        (flow.Cancel("busy"), CANCEL),
        (flow.Skip("busy"), SKIP),
        (flow.Finish("busy"), FINISH),
        (flow.Reattempt(reason="busy"), AGAIN),
    ],
)
def test_flow_control_in_a_handler_ends_like_a_policys_action(
    control: flow.FlowControl, expected: Any
) -> None:
    decision = decide_handled(control, ERROR, match(), reattempts=0, crashes=0)

    assert shape(decision) == expected
    assert decision.error is ERROR
    assert decision.notes == {"policy": "handle", "reason": "busy"}


@pytest.mark.parametrize("wait", [timedelta(0), timedelta(microseconds=1), timedelta(seconds=1)])
def test_without_a_limit_reattempts_wait_at_least_a_second(wait: timedelta) -> None:
    assert decide_error(ERROR, match("reattempt", cap=None), wait=wait).wait == timedelta(seconds=1)
    assert decide_error(ERROR, match("reattempt", cap=9), wait=wait).wait == wait


@pytest.mark.parametrize(
    ("control", "expected"),
    [
        (flow.Pause(), ("canceled", "workflow_paused", Then.PAUSE)),
        (flow.Cancel(), ("canceled", "canceled", Then.CANCEL)),
        (flow.Skip(), SKIP),
        (flow.Finish(), FINISH),
        (flow.Reattempt(HOUR), AGAIN),
    ],
)
def test_flow_control_in_a_step_records_no_error_and_resets_all_counts(
    control: flow.FlowControl, expected: Any
) -> None:
    decision = decide_flow(control)

    assert shape(decision) == expected
    assert decision.error is None
    assert decision.reattempts == decision.crashes == 0


@pytest.mark.parametrize(
    ("action", "crashes", "then"),
    [
        ("reattempt", 0, Then.SAME),
        ("reattempt", 1, Then.SAME),
        ("reattempt", 2, Then.PAUSE),
        ("pause", 0, Then.PAUSE),
        ("cancel", 0, Then.CANCEL),
    ],
)
def test_a_crash_does_not_change_the_count_of_reattempts(action: str, crashes: int, then: Then) -> None:
    decision = decide_crash(action, error=ERROR, crashes=crashes, limit=3, reattempts=5)

    assert shape(decision) == ("failed", "recovered", then)
    assert decision.crashes == crashes + 1
    assert decision.reattempts == 5


# -- invariants

waits = st.timedeltas(timedelta(0), timedelta(days=36525))
controls = st.one_of(
    st.builds(flow.Pause),
    st.builds(flow.Cancel),
    st.builds(flow.Skip),
    st.builds(flow.Finish),
    st.builds(flow.Reattempt, waits),
)
matches = st.builds(
    match,
    st.sampled_from([*PolicyAction, None]),
    cap=st.none() | st.integers(0, 200),
    terminal=st.sampled_from(list(ENDS)),
)
_AFTER = {
    Then.NEXT: {WorkflowState.READY, WorkflowState.PAUSED, WorkflowState.FINISHED},
    Then.SAME: {WorkflowState.READY, WorkflowState.PAUSED, WorkflowState.FINISHED},
    Then.PAUSE: {WorkflowState.PAUSED},
    Then.CANCEL: {WorkflowState.CANCELED},
    Then.FINISH: {WorkflowState.FINISHED},
}


@st.composite
def decisions(draw: st.DrawFn) -> tuple[Match | None, int, Decision]:
    """A policy or None, the number of reattempts so far, and the decision."""
    found = draw(st.none() | matches)
    done = draw(st.integers(0, 300))
    crashes = draw(st.integers(0, 10))
    if found is not None and found.policy.handler is not None:
        control = draw(controls)
        return found, done, decide_handled(control, ERROR, found, reattempts=done, crashes=crashes)
    wait = draw(waits)
    return found, done, decide_error(ERROR, found, reattempts=done, crashes=crashes, wait=wait)


@given(decisions())
def test_a_decision_ends_the_execution_and_leaves_the_workflow_in_an_allowed_state(
    case: tuple[Match | None, int, Decision],
) -> None:
    _, _, decision = case

    assert decision.state in {ExecutionState.COMPLETED, ExecutionState.FAILED, ExecutionState.SKIPPED}
    assert decision.outcome in Outcome
    assert _AFTER[decision.then] <= MOVES[WorkflowState.PERFORMING]
    assert decision.error is ERROR


@given(decisions())
def test_a_reattempt_is_within_the_limit_and_counted(case: tuple[Match | None, int, Decision]) -> None:
    found, done, decision = case

    if decision.then is not Then.SAME:
        assert decision.reattempts == 0
        return
    assert found is not None
    assert found.cap is None or decision.reattempts <= found.cap
    assert decision.reattempts == done + 1
    assert decision.wait is not None
    assert decision.wait >= (timedelta(seconds=1) if found.cap is None else timedelta(0))


@given(
    cap=st.integers(0, 60),
    crash_before=st.lists(st.booleans(), max_size=200),
    terminal=st.sampled_from(list(ENDS)),
)
def test_a_step_that_always_fails_gets_exactly_its_reattempts_despite_crashes(
    cap: int, crash_before: list[bool], terminal: str
) -> None:
    """Simulates the rows of one step: attempts fail or crash until something else follows."""
    runs = reattempts = crashes = 0
    script = iter(crash_before)
    while True:
        if next(script, False):
            decision = decide_crash("reattempt", error=ERROR, crashes=crashes, limit=3, reattempts=reattempts)
        else:
            runs += 1
            found = match("reattempt", cap=cap, terminal=terminal)
            decision = decide_error(ERROR, found, reattempts=reattempts, crashes=crashes)
        if decision.then is not Then.SAME:
            break
        reattempts, crashes = decision.reattempts, decision.crashes

    ended_by_crashes = decision.outcome == Outcome.RECOVERED
    assert runs <= 1 + cap
    assert ended_by_crashes or runs == 1 + cap
