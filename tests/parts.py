"""Which tests touch a database? Told from what a test asks for, so that nobody has to keep a list.

A test that touches none has the same result on every database, so the suite runs it once in each environment.
One that is taken for such a test by mistake fails: pytest-django blocks a database that was not asked for.

Of those that touch one, some wait for processes that they start, and the others keep one processor busy. A
database's tests run in two halves, side by side, so that the ones work while the others wait.
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterable
from enum import StrEnum

import pytest

__all__ = ["VARIABLE", "Part", "chosen_parts", "part_of", "touches_a_database"]

VARIABLE = "GENEVA_TEST_PARTS"


class Part(StrEnum):
    """The parts of the suite; each test is in one of them."""

    PLAIN = "plain"
    """Touches no database."""
    DATABASE = "database"
    """Touches a database, and starts no process."""
    PROCESSES = "processes"
    """Starts processes on its database. Nothing depends on it but how long the suite takes."""


FIXTURES = frozenset(
    {
        "database",
        "db",
        "django_db_reset_sequences",
        "django_db_serialized_rollback",
        # Not django_db_blocker: pytest-django has it in every test.
        "django_db_setup",
        "live_server",
        "transactional_db",
    }
)
"""Whoever asks for one of these, directly or not, uses the selected database or wants to know which it is."""
MARKERS = ("django_db", "only_on")
CONSTANT = "DATABASE"
"""The name in ``tests.conftest`` that tells which database is selected."""

STARTING = frozenset({"away", "child_environment", "driver", "launch", "quickstarted", "shop"})
"""The fixtures of tests that start processes."""


def chosen_parts() -> set[Part]:
    """The parts that this run is for. Raises ``ValueError`` for one that does not exist."""
    given = os.environ.get(VARIABLE)
    return {Part(name) for name in given.split(",")} if given else set(Part)


def part_of(item: pytest.Item) -> Part:
    """The part of the suite to which a test belongs."""
    if not touches_a_database(item):
        return Part.PLAIN
    starts = not STARTING.isdisjoint(getattr(item, "fixturenames", ()))
    return Part.PROCESSES if starts else Part.DATABASE


def touches_a_database(item: pytest.Item) -> bool:
    """Whether the result of a test may depend on the selected database."""
    if any(item.get_closest_marker(name) for name in MARKERS):
        return True
    if not FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        return True
    function = getattr(item, "function", None)
    if isinstance(function, types.FunctionType) and CONSTANT in _names(function.__code__):
        return True
    cls = getattr(item, "cls", None)
    if cls is None:
        return False
    # Not at the top: the plugin ``tests.report`` must also work without Django.
    from django.test import TransactionTestCase

    return issubclass(cls, TransactionTestCase)


def _names(code: types.CodeType) -> Iterable[str]:
    """The global names that a function uses, with those of the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
