"""Named backoffs: increasing, capped, with jitter."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geneva_drive.definition.policies import backoff

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("name", "attempt", "seconds"),
    [
        ("polynomial", 1, 3),
        ("polynomial", 2, 18),
        ("polynomial", 5, 627),
        ("polynomial", 18, 86400),
        ("exponential", 1, 2),
        ("exponential", 5, 32),
        ("exponential", 17, 86400),
    ],
)
def test_a_backoff_follows_its_curve(name: str, attempt: int, seconds: int) -> None:
    waits = [backoff(name, attempt) for _ in range(200)]

    assert max(waits) <= timedelta(seconds=seconds)
    assert min(waits) >= timedelta(seconds=seconds) * 0.849


@pytest.mark.parametrize("name", ["polynomial", "exponential"])
@pytest.mark.parametrize("attempt", [1, 64, 1_100, 10**9, 10**400])
def test_every_attempt_has_a_valid_backoff(name: str, attempt: int) -> None:
    assert timedelta(0) < backoff(name, attempt) <= DAY


@pytest.mark.parametrize("name", ["polynomial", "exponential"])
@pytest.mark.parametrize("attempt", [3, 1_100])
def test_jitter_spreads_reattempts_of_simultaneous_failures(name: str, attempt: int) -> None:
    assert len({backoff(name, attempt) for _ in range(50)}) > 25


@given(name=st.sampled_from(["polynomial", "exponential"]), attempt=st.integers(1, 10**6))
def test_a_backoff_stays_within_its_bounds(name: str, attempt: int) -> None:
    assert timedelta(seconds=1) <= backoff(name, attempt) <= DAY


@pytest.mark.parametrize(
    ("name", "attempt", "says"),
    [
        ("linear", 1, "'linear' is not a backoff. There are: polynomial, exponential"),
        ("polynomial", 0, "attempt=0"),
        ("polynomial", -1, "attempt=-1"),
        ("exponential", 1.5, "attempt=1.5"),
        ("exponential", True, "attempt=True"),
        ("exponential", float("nan"), "attempt=nan"),
    ],
)
def test_anything_else_is_refused(name: str, attempt: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        backoff(name, attempt)
