"""Which policy an exception meets.

The step's single policy, or its list: the specific ones in order, then the first blanket one → the class's
specific ones, the latest declared first → the class's latest blanket one → none, and the workflow pauses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.module_loading import import_string

from geneva_drive.definition import flow
from geneva_drive.definition.policies import Policy
from geneva_drive.exceptions import StepConfigurationError

__all__ = ["Match", "find_policy"]


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
