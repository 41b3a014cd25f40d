"""System checks."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.apps import apps
from django.core.checks import CheckMessage, run_checks
from django.db import DEFAULT_DB_ALIAS, connection, models
from django.test import modify_settings

from geneva_drive import Workflow, step
from geneva_drive.checks import check_columns, check_heroes, check_relations, check_settings
from geneva_drive.conf import DEFAULTS
from geneva_drive.models import columns
from tests.execution.support import own_classes_forgotten

if TYPE_CHECKING:
    from collections.abc import Iterator


def ids(messages: list[CheckMessage]) -> list[str]:
    return [str(message.id).removeprefix("geneva_drive.") for message in messages]


class TestSettings:
    def test_the_defaults_pass(self, settings: Any) -> None:
        settings.GENEVA_DRIVE = DEFAULTS
        assert check_settings() == []
        settings.GENEVA_DRIVE = {}
        assert check_settings() == []
        settings.GENEVA_DRIVE = None
        assert check_settings() == []

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("DISPATCHER", ("shop.Dispatcher", {"a": 1})),
            ("DISPATCHER", ["shop.Dispatcher", {}]),
            ("KEY_TYPE", "uuid"),
            ("HERO_KEY_TYPE", "string"),
            ("UNDEFINED_STEP_GRACE", timedelta(0)),
            ("RETENTION", timedelta(0)),
            ("RETENTION", None),
            ("MAX_PAYLOAD_BYTES", None),
            ("MAX_CRASHES", 1),
            ("INLINE_CONTINUATION", False),
        ],
    )
    def test_valid_values_are_accepted(self, settings: Any, key: str, value: object) -> None:
        settings.GENEVA_DRIVE = {key: value}
        assert check_settings() == []

    @pytest.mark.parametrize(
        ("key", "value", "words"),
        [
            ("DISPATCHER", 7, "a string or (a string, a dict)"),
            ("DISPATCHER", "", "a string"),
            ("DISPATCHER", ("shop.Dispatcher",), "(a string, a dict)"),
            ("DISPATCHER", ("shop.Dispatcher", 7), "(a string, a dict)"),
            ("KEY_TYPE", "string", "one of 'bigint', 'uuid'"),
            ("KEY_TYPE", None, "one of 'bigint', 'uuid'"),
            ("HERO_KEY_TYPE", "int", "one of 'auto', 'bigint', 'uuid', 'string'"),
            ("RECOVERY_ACTION", "skip", "one of 'reattempt', 'pause', 'cancel'"),
            ("DEFAULT_QUEUE", None, "a string"),
            ("INLINE_CONTINUATION", 1, "True or False"),
            ("LEASE", 30, "a timedelta"),
            ("LEASE", timedelta(0), "more than zero"),
            ("LEASE", timedelta(seconds=-1), "more than zero"),
            ("UNDEFINED_STEP_GRACE", timedelta(seconds=-1), "zero or more"),
            ("RETENTION", 30, "a timedelta or None"),
            ("MAX_CRASHES", True, "an integer"),
            ("MAX_CRASHES", 0, "1 or more"),
            ("MAX_CRASHES", 2.0, "an integer"),
            ("CLEANUP_BATCH_SIZE", None, "an integer"),
            ("MAX_PAYLOAD_BYTES", "128k", "an integer or None"),
        ],
    )
    def test_wrong_values_are_refused(self, settings: Any, key: str, value: object, words: str) -> None:
        settings.GENEVA_DRIVE = {key: value}

        (message,) = check_settings()

        assert ids([message]) == ["E003"]
        assert f"GENEVA_DRIVE[{key!r}] is {value!r}. " in message.msg
        assert words in message.msg

    def test_unknown_keys_are_refused(self, settings: Any) -> None:
        settings.GENEVA_DRIVE = {"RETENTOIN": None, "lease": timedelta(1), "COLOUR": "red", 7: 7}

        messages = check_settings()

        assert ids(messages) == ["E002"] * 4
        assert messages[0].hint == "Did you mean 'RETENTION'?"
        assert messages[1].hint == "Did you mean 'LEASE'?"
        assert "KEY_TYPE" in str(messages[2].hint)

    @pytest.mark.parametrize("given", [["LEASE"], "LEASE", 7])
    def test_must_be_a_dict(self, settings: Any, given: object) -> None:
        settings.GENEVA_DRIVE = given
        assert ids(check_settings()) == ["E001"]

    @pytest.mark.django_db(databases="__all__")
    def test_run_with_all_checks(self, settings: Any) -> None:
        settings.GENEVA_DRIVE = {"COLOUR": "red"}
        assert "geneva_drive.E002" in {message.id for message in run_checks()}


class TestRelations:
    @pytest.fixture
    def installed(self) -> Iterator[None]:
        """An app to which a test can add models."""
        with modify_settings(INSTALLED_APPS={"append": ["tests.columnsapp"]}):
            before = set(apps.all_models["columnsapp"])
            yield
            for name in set(apps.all_models["columnsapp"]) - before:
                del apps.all_models["columnsapp"][name]
        apps.clear_cache()

    def test_relations_of_the_test_models_pass(self) -> None:
        assert check_relations() == []

    def test_foreign_keys_to_workflow_classes_are_refused(self, installed: None) -> None:
        class Pointed(Workflow):
            class Meta:
                app_label = "columnsapp"

            @step
            def one(self) -> None:
                pass

        class Pointing(models.Model):
            wrong = models.ForeignKey(Pointed, on_delete=models.CASCADE, related_name="+")
            right = models.ForeignKey(Workflow, on_delete=models.CASCADE, related_name="+")
            many = models.ManyToManyField(Pointed, related_name="+")

            class Meta:
                app_label = "columnsapp"

            def __str__(self) -> str:
                return "pointing"

        messages = check_relations()

        assert ids(messages) == ["E004", "E004"]
        assert "columnsapp.Pointing.wrong points to Pointed" in messages[0].msg
        assert "columnsapp.Pointing.many points to Pointed" in messages[1].msg
        assert "'geneva_drive.Workflow'" in str(messages[0].hint)


def on_default() -> list[CheckMessage]:
    return check_columns(databases=[DEFAULT_DB_ALIAS])


def found(given: list[CheckMessage], wanted: str) -> list[CheckMessage]:
    return [message for message in given if message.id == f"geneva_drive.{wanted}"]


@pytest.mark.django_db
class TestColumns:
    def test_no_database_is_read_unless_requested(self) -> None:
        with connection.execute_wrapper(_refuse):
            assert check_columns(databases=None) == []
            assert check_columns() == []

    def test_the_test_databases_columns_pass(self) -> None:
        assert found(on_default(), "E005") == []

    def test_a_key_type_that_differs_from_the_columns_is_an_error(self, settings: Any) -> None:
        kind = columns.key_kind(connection, columns.WORKFLOW_TABLE, "id")
        other = "uuid" if kind == "bigint" else "bigint"
        settings.GENEVA_DRIVE = {**settings.GENEVA_DRIVE, "KEY_TYPE": other}

        (message,) = found(on_default(), "E005")

        assert f"is {other!r}" in message.msg
        assert f"Set it to {kind!r}" in str(message.hint)

    def test_a_hero_key_type_that_differs_from_the_current_decision_is_a_warning(self, settings: Any) -> None:
        kind = columns.hero_key_kind(DEFAULT_DB_ALIAS)
        for wanted in columns.KINDS:
            settings.GENEVA_DRIVE = {**settings.GENEVA_DRIVE, "HERO_KEY_TYPE": wanted}

            messages = found(on_default(), "W006")

            assert len(messages) == (wanted != kind)
            for message in messages:
                assert f"is {kind}" in message.msg
                assert f"make it {wanted}" in message.msg
                assert "geneva_hero_key" in str(message.hint)

    def test_are_run_by_check_and_by_migrate(self, settings: Any) -> None:
        wanted = {"bigint": "uuid", "uuid": "string", "string": "bigint"}[
            columns.hero_key_kind(DEFAULT_DB_ALIAS)
        ]
        settings.GENEVA_DRIVE = {**settings.GENEVA_DRIVE, "HERO_KEY_TYPE": wanted}

        messages = run_checks(
            databases=[DEFAULT_DB_ALIAS], include_deployment_checks=False, tags=["database"]
        )

        assert "geneva_drive.W006" in {message.id for message in messages}

    def test_a_database_without_the_tables_is_not_checked(self, settings: Any) -> None:
        class Router:
            def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
                return app_label != "geneva_drive"

        settings.DATABASE_ROUTERS = [Router()]
        settings.GENEVA_DRIVE = {"HERO_KEY_TYPE": "string", "KEY_TYPE": "uuid"}
        assert on_default() == []


def _refuse(*args: Any) -> Any:
    raise AssertionError("a query")


def test_a_hero_model_that_is_not_installed() -> None:
    with own_classes_forgotten():

        class Misspelt(Workflow):
            hero_model = "testapp.Ordr"

            class Meta:
                app_label = "testapp"

            @step
            def only(self) -> None:
                pass

        (found,) = check_heroes()

    assert ids([found]) == ["E009"]
    assert "testapp.Misspelt: hero_model='testapp.Ordr' is not an installed model" in found.msg
    assert check_heroes() == []
