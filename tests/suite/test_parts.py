"""Which part of the suite a test belongs to is told from what it asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import SimpleTestCase, TestCase, TransactionTestCase

from tests.conftest import DATABASE
from tests.parts import VARIABLE, Part, chosen_parts, part_of


def test_most_touch_no_database(request: pytest.FixtureRequest) -> None:
    assert part_of(request.node) is Part.PLAIN


def test_a_database_that_was_not_asked_for_is_refused(request: pytest.FixtureRequest) -> None:
    """So that nothing is taken for a plain test that is none."""
    with pytest.raises(RuntimeError, match="Database access not allowed"):
        Group.objects.exists()


@pytest.mark.django_db
def test_a_marked_one_does(request: pytest.FixtureRequest) -> None:
    assert part_of(request.node) is Part.DATABASE


@pytest.fixture
def group(db: None) -> Group:
    return Group.objects.create(name="of a fixture")


def test_one_whose_fixture_does_does_too(group: Group, request: pytest.FixtureRequest) -> None:
    assert part_of(request.node) is Part.DATABASE


@pytest.mark.only_on(DATABASE, reason="an example")
def test_one_for_some_databases_is_run_on_those(request: pytest.FixtureRequest) -> None:
    assert part_of(request.node) is Part.DATABASE


def test_so_is_one_that_looks_which_database_is_selected(request: pytest.FixtureRequest) -> None:
    assert [each for each in [DATABASE] if each]
    assert part_of(request.node) is Part.DATABASE


@pytest.mark.django_db(transaction=True)
def test_one_that_starts_processes_is_among_its_like(
    child_environment: Callable[[], dict[str, str]], request: pytest.FixtureRequest
) -> None:
    assert part_of(request.node) is Part.PROCESSES


class _Noted:
    node: Any

    @pytest.fixture(autouse=True)
    def _note(self, request: pytest.FixtureRequest) -> None:
        self.node = request.node


class TestPlain(_Noted, SimpleTestCase):
    def test_touches_none(self) -> None:
        assert part_of(self.node) is Part.PLAIN


class TestRolledBack(_Noted, TestCase):
    def test_touches_one(self) -> None:
        assert part_of(self.node) is Part.DATABASE


class TestCommitted(_Noted, TransactionTestCase):
    def test_touches_one(self) -> None:
        assert part_of(self.node) is Part.DATABASE


def test_a_run_is_for_all_parts_or_for_those_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert chosen_parts() == {*Part}
    monkeypatch.setenv(VARIABLE, "plain,processes")
    assert chosen_parts() == {Part.PLAIN, Part.PROCESSES}
    monkeypatch.setenv(VARIABLE, "slow")
    with pytest.raises(ValueError, match="slow"):
        chosen_parts()
