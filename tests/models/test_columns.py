"""The type of the hero key column, and how it is decided."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connection, connections, models
from django.test import modify_settings, override_settings

from geneva_drive.models import Workflow, columns
from geneva_drive.models.columns import decide_hero_key
from geneva_drive.models.fields import HeroKeyField, JSONColumn
from tests.columnsapp.models import ChildHero, IntegerHero, TextHero, UUIDHero


class TestDecision:
    @pytest.mark.parametrize(
        ("uuids", "strings", "integers", "kind"),
        [
            (0, 0, 0, "bigint"),
            (0, 0, 1, "bigint"),
            (1, 0, 0, "uuid"),
            (0, 1, 0, "string"),
            (1, 0, 1, "bigint"),  # a tie
            (0, 1, 1, "bigint"),
            (1, 1, 0, "string"),  # UUIDs are not the majority
            (2, 1, 0, "uuid"),
            (1, 1, 1, "string"),  # together they outnumber integers
            (1, 1, 2, "bigint"),  # together they do not
            (2, 1, 1, "string"),  # two against two others
            (3, 1, 1, "uuid"),
            (5, 0, 4, "uuid"),
            (4, 0, 5, "bigint"),
            (4, 1, 4, "string"),
        ],
    )
    def test_the_rule_for_the_key_type(self, uuids: int, strings: int, integers: int, kind: str) -> None:
        assert decide_hero_key(uuids=uuids, strings=strings, integers=integers) == kind

    @pytest.mark.django_db
    @pytest.mark.parametrize("kind", columns.KINDS)
    def test_the_setting_decides_before_the_count(self, settings: Any, kind: str) -> None:
        settings.GENEVA_DRIVE = {"HERO_KEY_TYPE": kind}
        assert columns.declared_kind(DEFAULT_DB_ALIAS) == kind

    @pytest.mark.django_db
    def test_a_wrong_setting_is_named(self, settings: Any) -> None:
        settings.GENEVA_DRIVE = {"HERO_KEY_TYPE": "text"}
        with pytest.raises(ImproperlyConfigured, match="HERO_KEY_TYPE"):
            columns.declared_kind(DEFAULT_DB_ALIAS)


def counted() -> dict[str, columns.ModelKey]:
    return {key.label: key for key in columns.count_hero_keys(DEFAULT_DB_ALIAS).models}


class TestCount:
    @pytest.mark.django_db
    def test_models_whose_tables_do_not_exist_count_as_declared(self) -> None:
        with modify_settings(INSTALLED_APPS={"append": ["tests.columnsapp"]}):
            found = counted()

        mine = {label: key for label, key in found.items() if label.startswith("columnsapp.")}
        assert {label: key.family for label, key in mine.items()} == {
            "columnsapp.IntegerHero": "integer",
            "columnsapp.UUIDHero": "uuid",
            "columnsapp.TextHero": "string",
            "columnsapp.ChildHero": "uuid",
        }
        assert {key.source for key in mine.values()} == {"field"}

    @pytest.mark.django_db
    def test_models_of_the_library_and_of_django_are_excluded_except_the_user(self) -> None:
        labels = set(counted())

        assert {"auth.User", "testapp.Order", "testapp.Ticket"} <= labels
        assert not {"auth.Group", "sessions.Session", "contenttypes.ContentType"} & labels
        assert not [label for label in labels if label.startswith("geneva_drive.")]

    @pytest.mark.django_db
    def test_the_counts_are_of_the_models(self) -> None:
        count = columns.count_hero_keys(DEFAULT_DB_ALIAS)
        families = [key.family for key in count.models]

        assert (count.uuids, count.strings, count.integers) == (
            families.count("uuid"),
            families.count("string"),
            families.count("integer"),
        )
        assert count.integers >= 2  # the user and testapp.Order
        assert count.uuids >= 1  # testapp.Ticket

    @pytest.mark.django_db
    def test_models_in_other_databases_do_not_count(self) -> None:
        class Router:
            def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
                return app_label != "testapp"

        with override_settings(DATABASE_ROUTERS=[Router()]):
            labels = set(counted())

        assert "auth.User" in labels
        assert not [label for label in labels if label.startswith("testapp.")]

    @pytest.mark.parametrize(
        ("sql_type", "family"),
        [
            ("bigint", "integer"), ("integer", "integer"), ("int(11)", "integer"), ("smallint", "integer"),
            ("bigint(20) unsigned", "integer"), ("tinyint(4)", "integer"), ("integer unsigned", "integer"),
            ("bigserial", "integer"), ("uuid", "uuid"), ("varchar(255)", "string"), ("text", "string"),
            ("character varying(40)", "string"), ("character(32)", "string"), ("char(36)", "string"),
            ("longtext", "string"), ("citext", "string"), ("numeric(10,0)", None), ("interval", None),
            ("point", None), ("date", None), ("binary(16)", None), ("", None), (None, None),
        ],
    )  # fmt: skip
    def test_families_of_column_types(self, sql_type: str | None, family: str | None) -> None:
        assert columns.family(sql_type) == family

    @pytest.mark.django_db
    @pytest.mark.parametrize("real", ["char(32)", "char(36)", "varchar(36)"])
    def test_a_uuid_field_reads_uuids_from_any_text_format(self, real: str) -> None:
        found = {("columnsapp_uuidhero", "id"): real, ("columnsapp_texthero", "id"): real}

        assert columns._model_key(UUIDHero, DEFAULT_DB_ALIAS, found).family == "uuid"
        assert columns._model_key(TextHero, DEFAULT_DB_ALIAS, found).family == "string"

    @pytest.mark.django_db
    def test_the_real_column_counts_more_than_the_field(self) -> None:
        found = {("columnsapp_uuidhero", "id"): "bigint", ("columnsapp_integerhero", "id"): "uuid"}

        assert columns._model_key(UUIDHero, DEFAULT_DB_ALIAS, found).family == "integer"
        assert columns._model_key(IntegerHero, DEFAULT_DB_ALIAS, found).family == "uuid"
        assert columns._model_key(ChildHero, DEFAULT_DB_ALIAS, {}).family == "uuid"


class TestWhatIsThere:
    @pytest.mark.django_db
    def test_before_the_table_is_made_the_decision_counts(self, settings: Any) -> None:
        for kind in columns.KINDS:
            settings.GENEVA_DRIVE = {"HERO_KEY_TYPE": kind}
            assert columns.real_hero_column(connection, "no_such_table", "hero_id") is None
            column = HeroKeyField(kind=kind).column_on(connection)
            assert (column.kind, column.sql_type) == (kind, None)

    @pytest.mark.django_db
    def test_after_the_table_is_made_the_column_counts(self, settings: Any) -> None:
        real = columns.hero_key_kind(DEFAULT_DB_ALIAS)
        for kind in columns.KINDS:
            settings.GENEVA_DRIVE = {"HERO_KEY_TYPE": kind}
            columns.reset()
            assert columns.hero_key_kind(DEFAULT_DB_ALIAS) == real

    @pytest.mark.django_db
    def test_is_queried_once_without_counting_as_a_query(self, django_assert_num_queries: Any) -> None:
        columns.reset(DEFAULT_DB_ALIAS)
        asked: list[str] = []

        def note(execute: Any, sql: str, *args: Any) -> Any:
            asked.append(sql)
            return execute(sql, *args)

        with connection.execute_wrapper(note), django_assert_num_queries(3):
            for _ in range(3):
                Workflow.objects.filter(hero_id=None, metadata__isnull=False).first()
                columns.hero_key_kind(DEFAULT_DB_ALIAS)
                columns.json_storage(connection, columns.WORKFLOW_TABLE, "metadata")
        assert len([sql for sql in asked if "geneva_drive_workflow" not in sql]) == 1

    @pytest.mark.django_db(databases=["default", "other"])
    def test_is_cached_per_alias_and_can_be_cleared_for_one(self) -> None:
        for alias in ("default", "other"):
            columns.hero_key_kind(alias)

        columns.reset("other")
        assert {key[0] for key in columns._real} == {"default"}

        columns.hero_key_kind("other")
        columns.reset()
        assert columns._real == {}

    @pytest.mark.django_db
    def test_a_missing_table_is_not_cached(self) -> None:
        columns.reset()
        columns.json_storage(connection, "no_such_table", "metadata")
        assert columns._real == {}

    @pytest.mark.django_db(transaction=True)
    def test_a_missing_column_is_queried_again(self) -> None:
        columns.reset()
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE columns_later (one bigint)")
            try:
                assert columns.real_hero_column(connection, "columns_later", "hero_id") is None

                cursor.execute("ALTER TABLE columns_later ADD hero_id varchar(40)")
                column = columns.real_hero_column(connection, "columns_later", "hero_id")
            finally:
                cursor.execute("DROP TABLE columns_later")
                columns.reset()

        assert column is not None
        assert (column.kind, column.length) == ("string", 40)

    @pytest.mark.django_db
    def test_generated_columns_are_found(self) -> None:
        found = columns.column_types(connection, [columns.WORKFLOW_TABLE, "django_content_type"])

        assert (columns.WORKFLOW_TABLE, "ongoing_key") in found
        assert ("django_content_type", "id") in found
        assert {table for table, _ in found} == {columns.WORKFLOW_TABLE, "django_content_type"}

    @pytest.mark.django_db
    def test_many_tables_are_queried_in_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(columns, "_BATCH", 2)
        names = ["a", "b", columns.WORKFLOW_TABLE, "c", "django_content_type"]

        found = columns.column_types(connection, names)

        assert {table for table, _ in found} == {columns.WORKFLOW_TABLE, "django_content_type"}

    @pytest.mark.django_db(transaction=True)
    def test_threads_see_the_same(self) -> None:
        columns.reset()
        seen: list[str] = []

        def look() -> None:
            try:
                seen.append(columns.hero_key_kind(DEFAULT_DB_ALIAS))
            finally:
                connections.close_all()

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 4
        assert len(set(seen)) == 1


def test_importing_makes_no_query() -> None:
    """Building the queries makes no query either."""
    program = """
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "geneva_drive"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": "1"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()
from geneva_drive.models import Workflow
Workflow.objects.filter(hero_id=7, metadata={"a": 1}, created_at__lte="2024-01-01T00:00:00Z")
Workflow(hero_id=7, metadata={})
print("no connection")
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd="."
    )
    assert ran.stdout == "no connection\n", ran.stderr


@pytest.mark.django_db
def test_expressions_without_a_model_use_the_workflows_column() -> None:
    assert HeroKeyField().column_on(connection) == columns.hero_column(connection)
    assert models.Value({"a": 1}, JSONColumn()).output_field.get_db_prep_value({"a": 1}, connection)
