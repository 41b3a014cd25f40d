"""Which tests touch a database? Told from what a test asks for, so that nobody has to keep a list.

A test that touches none has the same result on every database, so the suite runs it once in each environment.
One that is taken for such a test by mistake fails: pytest-django blocks a database that was not asked for.
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterable

import pytest

__all__ = ["LEFT_TO_ANOTHER", "VARIABLE", "WITH_A_DATABASE", "leaves_out_the_others", "touches_a_database"]

VARIABLE = "GENEVA_TEST_PART"
WITH_A_DATABASE = "database"
"""The value with which a run leaves out the tests that touch no database."""

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

LEFT_TO_ANOTHER = pytest.StashKey[int]()
"""In pytest's config: how many tests this run leaves to another one."""


def leaves_out_the_others() -> bool:
    """Whether this run is for the tests alone that touch a database."""
    return os.environ.get(VARIABLE) == WITH_A_DATABASE


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
